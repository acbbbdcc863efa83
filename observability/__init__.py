"""What a run reports about itself, and the tools that read it: event log, metrics, progress view, monitor, report, benchmarks."""
