"""Tests of the capacity finder and the calendar."""
