"""What a check of the preflight answers."""

from __future__ import annotations

Answer = tuple[str, str]
"""What is wrong, with names and values, and how to fix it."""
