"""Tests of `training.tracking`."""
