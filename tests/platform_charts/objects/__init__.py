"""Tests of our own Kubernetes objects."""
