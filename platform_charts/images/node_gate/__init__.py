"""Removes the start-up taint from a GPU node once all devices of its group are allocatable.

The program is part of the image `mlflow` and imports nothing else of the repository.
"""
