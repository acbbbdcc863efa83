"""Benchmark of `communication.*`: hosts with slow links train the same model with one setting after the other."""
