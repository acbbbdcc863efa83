"""Copies a folder of an S3 bucket to the shared datasets: what the Job of `make data-sync` runs.

The program is part of the image `mlflow`, which has boto3 and is a small part of the trainer's size; it imports nothing else of the
repository.
"""
