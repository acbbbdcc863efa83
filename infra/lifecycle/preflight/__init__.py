"""Checks before anything is created or changed."""
