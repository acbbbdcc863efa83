"""What a run says of itself: its log of events, its metrics, its report, the terminal view and the benchmarks."""
