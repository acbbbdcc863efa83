"""Tests of the reference."""
