"""Ray Tune as the engine of a search: it schedules the trials, and our searcher and scheduler decide."""
