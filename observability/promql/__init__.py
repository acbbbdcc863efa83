"""Checks PromQL against the inventory of metrics, for alert rules and dashboards."""
