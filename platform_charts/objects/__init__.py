"""Builders of our own Kubernetes objects, as plain data."""
