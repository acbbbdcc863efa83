"""Tests of `make down`."""
