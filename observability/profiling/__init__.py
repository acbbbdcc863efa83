"""Why a run is slow: what each rank did in a window of profiled steps, and a verdict in words.

A rank writes what the profiler and the loop saw of its steps (`window`). `trace_file` reads a trace as a stream, `activity` sorts what
happened by kind, `breakdown` divides the steps' time, `verdict` judges it, `analysis` puts that together. Nothing here imports torch.
"""
