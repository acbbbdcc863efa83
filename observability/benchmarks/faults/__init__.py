"""What faults cost, next to the pattern that Ray Train documents: `python -m observability.benchmarks.faults` (`make bench-faults`)."""
