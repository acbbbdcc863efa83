"""Every environment variable that the platform reads or sets, in one inventory: docs/REFERENCE.md and .env.example are made of it."""
