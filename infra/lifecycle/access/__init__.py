"""The way to an environment's running cluster: directly, or through a tunnel."""
