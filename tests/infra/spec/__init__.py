"""Tests of the stack's leaf modules: plain data, no cloud, no Pulumi."""
