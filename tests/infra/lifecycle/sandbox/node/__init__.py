"""Tests of real nodes."""
