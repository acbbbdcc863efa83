"""Tests of the platform's own Kubernetes objects."""
