"""`monitor-up`: Prometheus, and Grafana where it is installed, for the runs of this machine, with the stack's rules and dashboards."""
