"""The training's own metrics: one inventory, what is recorded from a run's events, and the exporters it goes out by."""
