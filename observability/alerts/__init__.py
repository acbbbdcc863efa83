"""Recording and alert rules of Prometheus as typed Python, one module for each subject.

`python -m observability.alerts` checks them against the metrics' inventory and writes the file that the stack delivers.
"""
