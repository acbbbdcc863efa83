"""Writes docs/REFERENCE.md, the pages it links and .env.example from the code; nothing imports this package."""
