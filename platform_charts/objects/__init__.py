"""Builders of the platform's own Kubernetes objects, as plain data."""
