"""Real parts for tests: servers that are started on loopback and stopped again, as fixtures."""
