"""Fixtures that start real servers on loopback and stop them again."""
