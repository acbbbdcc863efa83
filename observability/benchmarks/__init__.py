"""Benchmarks: ratios measured side by side in one run. `python -m observability.benchmarks` (make bench) runs them all."""
