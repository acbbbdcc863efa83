"""Writes docs/REFERENCE.md, the pages it links and .env.example from the code, and tests that nothing is missing there."""
