"""The program of the MLflow image: `python -m mlflow_server COMMAND`.

`migrate` runs as a Job for each release: databases, schemas, accounts, and the Secrets with their credentials. `serve` is
the server. `cleanup`, `backup` and `restore-drill` run as CronJobs. In the image this is a top-level package, without the rest of the
repository.
"""
