"""Tests of the search on Ray Tune."""
