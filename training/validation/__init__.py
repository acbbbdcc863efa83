"""Validation next to the training: a process of its own evaluates checkpoints while the ranks go on."""
