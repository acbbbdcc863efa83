"""The program of the MLflow image: `python -m mlflow_server migrate|serve`.

`migrate` runs as a Job for each release: databases, schemas, accounts, and the Secrets with their credentials. `serve` is
the server. In the image this is a top-level package, without the rest of the repository.
"""
