"""Tests of the checks of PromQL."""
