"""Tests of the program that submits scheduled jobs."""
