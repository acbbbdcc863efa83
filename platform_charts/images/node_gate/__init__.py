"""Takes the start-up taint off a GPU node once the node offers every device its group promises.

A program of its own, which runs in the image `mlflow` and knows nothing of the rest of the repository.
"""
