"""The wheel of the trainer's side."""
