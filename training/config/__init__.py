"""Settings of a training run: their schema, and how they are read from files and the command line."""
