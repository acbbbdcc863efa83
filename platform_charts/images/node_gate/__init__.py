"""Keeps jobs off GPU nodes that are not ready yet, or sick.

A new node has a start-up taint, which is removed once all its devices are allocatable and the diagnostics have passed. A sick
node gets another taint until it is healthy again or replaced; EKS repairs it.

The program is part of the image `mlflow` and imports nothing else of the repository.
"""
