"""Draws dashboards without Grafana, with the data of a Prometheus."""
