"""Benchmarks of the platform against baselines. `python -m observability.benchmarks` (`make bench`) runs them all."""
