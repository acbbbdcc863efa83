"""Tests of alert rules."""
