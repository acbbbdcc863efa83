"""Programs of the project's own images; they import nothing else of the repository."""
