"""What monitoring costs at scale: a real Prometheus that scrapes a simulated fleet and evaluates the stack's rules.

The exporters are generated from the inventory of metrics, so a metric that is added there is added here too.
"""
