"""Tests of the stack."""
