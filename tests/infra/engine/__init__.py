"""Tests with Pulumi's real engine."""
