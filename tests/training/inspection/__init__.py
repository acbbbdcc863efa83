"""Tests of `make data`."""
