"""The trainer: one loop under three launchers, and everything a rank needs. Importing this package imports nothing heavy."""
