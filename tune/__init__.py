"""Hyperparameter search over distributed training runs."""
