"""Python packages that a code folder needs in addition to the platform's."""
