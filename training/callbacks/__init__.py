"""Callbacks: behaviour at named points of the training loop, one concern a file. `callback` has the table of points."""
