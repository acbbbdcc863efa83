"""Writes progress, remaining time, and the reason why a job does not run, to annotations of its RayJob.

A printer column of `kubectl get rayjobs` shows a field of the object and nothing else, and jobs have no API token, so
somebody has to copy their figures there. Prometheus has them already, of all jobs.

The program is part of the image `mlflow` and imports nothing else of the repository.
"""
