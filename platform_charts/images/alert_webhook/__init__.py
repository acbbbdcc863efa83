"""Hands Alertmanager the URL it posts alerts to; in the image it stands at the top, without the rest of the repository."""
