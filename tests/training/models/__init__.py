"""Tests of `training.models`."""
