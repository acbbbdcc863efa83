"""Profiles of a running training: requests for them (`request`, `command`), and the PyTorch profiler (`recorder`).

`training.callbacks.profiling` decides which steps are profiled; `observability.profiling` reads the files and judges.
"""
