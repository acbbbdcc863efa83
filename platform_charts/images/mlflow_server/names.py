"""Names that several modules share."""

from __future__ import annotations

RUNS = "mlflow"
"""Database for experiments, runs, models and workspaces."""

ACCOUNTS = "mlflow_auth"
"""Database for users and permissions; MLflow versions the two schemas separately, so they cannot share one."""

ADMINISTRATOR = "platform_admin"
"""Name of the administrator. The underscore prevents a clash with teams, which are namespaces."""

SERVER_SECRET = "mlflow-server"  # noqa: S105 - a name
"""Secret in the server's namespace: `flask-secret-key` for the pods, `admin-password` for administrators."""

TEAM_SECRET = "mlflow-credentials"  # noqa: S105 - a name
"""Secret in a team's namespace: environment variables with the credentials of MLflow's client."""

ARTIFACT_FOLDER = "mlflow"
"""Folder of the artifact bucket with everything of MLflow's."""

BACKUP_FOLDER = "backups"
"""Folder of the artifact bucket with the backups; the server's role cannot write there."""
