"""Tests of `infra/lifecycle/stack`."""
