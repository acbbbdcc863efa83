"""Tests of the delivery to MLflow."""
