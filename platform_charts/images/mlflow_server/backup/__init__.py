"""Backups of MLflow in the artifact bucket, and drills that restore them: `python -m mlflow_server backup|restore-drill`.

A backup is a folder of the bucket: the rows of each table as PostgreSQL's COPY writes them, the list of artifact versions, the list of
checkpoints, and a manifest with what all of them hold. The manifest is written last, so a folder without one is no backup.

Schemas are not in it: MLflow's own migrations create them, at the revision that the manifest names. So a backup restores on any
version of PostgreSQL, and under any version of MLflow that has the revision.
"""
