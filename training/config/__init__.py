"""Settings of a training run: their schema, and the sources they are read from."""
