"""Programs that run inside our own images, each independent of the rest of the repository."""
