"""Writes the URL of Alertmanager's webhook to a file; in the image a top-level package."""
