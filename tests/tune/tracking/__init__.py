"""Tests of what MLflow has of a search."""
