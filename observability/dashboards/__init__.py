"""Grafana dashboards as typed Python, one module for each dashboard.

`python -m observability.dashboards` checks every query against the metrics' inventory and writes the files that the stack
delivers; `preview` draws them with the data of a Prometheus.
"""
