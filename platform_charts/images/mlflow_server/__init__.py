"""The program of the MLflow image: `python -m mlflow_server migrate|serve`.

`migrate` is a Job, run once for each release: databases and their schemas, accounts, and the Secrets the accounts log in with. `serve` is
the server itself. In the image this package stands at the top, without the rest of the repository.
"""
