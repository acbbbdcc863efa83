"""Tests of the node gate."""
