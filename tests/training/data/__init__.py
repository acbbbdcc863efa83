"""Tests of `training.data`."""
