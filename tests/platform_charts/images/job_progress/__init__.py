"""Tests of the program that writes the progress of jobs."""
