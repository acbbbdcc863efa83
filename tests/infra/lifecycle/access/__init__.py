"""Tests of `infra/lifecycle/access`."""
