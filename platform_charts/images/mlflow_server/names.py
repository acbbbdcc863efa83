"""Names that more than one command of the image knows."""

from __future__ import annotations

RUNS = "mlflow"
"""Database of experiments, runs, models and workspaces."""

ACCOUNTS = "mlflow_auth"
"""Database of users and permissions; MLflow's two schemas cannot share one: each numbers its own versions."""

ADMINISTRATOR = "platform_admin"
"""Account that may do everything. No team is called so: teams are names of namespaces, which have no underscore."""

SERVER_SECRET = "mlflow-server"  # noqa: S105 - a name
"""Secret beside the server: `flask-secret-key`, which its pods need to start, and `admin-password`, for people."""

TEAM_SECRET = "mlflow-credentials"  # noqa: S105 - a name
"""Secret in a team's namespace: the environment variables by which MLflow's client logs in."""
