"""Tests of the services of a sandbox's real nodes."""
