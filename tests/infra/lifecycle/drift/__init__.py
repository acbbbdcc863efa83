"""Tests of `make drift`."""
