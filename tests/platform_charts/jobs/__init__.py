"""Tests of the job templates."""
