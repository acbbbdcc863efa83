"""A Kubernetes without machines, on loopback: the real control plane, and nodes that only say they are there."""
