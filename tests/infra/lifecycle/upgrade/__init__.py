"""Tests of `make upgrade`."""
