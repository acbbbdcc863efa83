"""Tests of `infra/lifecycle/preflight`."""
