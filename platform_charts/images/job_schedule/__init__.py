"""Submits one occurrence of a scheduled job: what the Jobs of a schedule's CronJob run.

The program is part of the image `mlflow` and imports nothing else of the repository.
"""
