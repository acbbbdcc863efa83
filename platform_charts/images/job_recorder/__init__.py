"""Keeps what the API server knows of a job beyond the job: the last states of its pods, its events and its status changes.

Pods are gone with the Ray cluster, a minute after the job, and events after an hour. The program writes a record of each
job to a ConfigMap next to it, and prints it when the job is over, so that an environment that ships logs keeps it as well.

The program is part of the image `mlflow` and imports nothing else of the repository.
"""
