"""Callbacks: behaviour at the hooks of the training loop, one concern per file. `callback` has the table of hooks."""
