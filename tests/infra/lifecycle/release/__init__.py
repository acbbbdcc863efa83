"""Tests of `infra/lifecycle/release`."""
