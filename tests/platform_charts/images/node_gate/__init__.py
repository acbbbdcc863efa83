"""Tests of the gate of GPU nodes."""
