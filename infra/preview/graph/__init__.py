"""A recording as a table, as JSON, and as a picture of the architecture."""
