"""Training metrics: one inventory, the values that a run's events give, and the exporters that publish them."""
