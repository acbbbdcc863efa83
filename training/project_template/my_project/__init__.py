"""A model, a dataset and an objective; train.yaml names them."""
