"""Tests of the program that changes the number of workers of elastic jobs."""
