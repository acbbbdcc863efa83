"""MLflow: a parent run for the search, a child run for each trial, and the best model as a version of its registered model."""
