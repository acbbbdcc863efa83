"""Tests of `infra/lifecycle/disposable`."""
