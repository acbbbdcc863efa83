"""Scripts that run in the build of the trainer image."""
