"""Migrate databases, accounts and Secrets to this release; idempotent, so an interrupted run can be repeated."""

from __future__ import annotations

from .cluster import Secrets, random_password
from .database import Database
from .environment import BootstrapSettings
from .names import ACCOUNTS, RUNS, SERVER_SECRET, TEAM_SECRET


def migrate(settings: BootstrapSettings, database: Database, secrets: Secrets) -> None:
    """Run everything that this release's server depends on.

    The server's Secret is created after the schemas: pods cannot start without it, so none initializes an empty database.
    An account's password that differs from its Secret, as after an interruption, is set to the Secret's.

    Raises:
        Exception: of botocore, psycopg2, kubernetes or MLflow; completed steps are kept.
    """
    database.refresh_credentials()
    for name in (RUNS, ACCOUNTS):
        database.create(name)
    database.upgrade()
    # Late import: MLflow's server opens its stores at import.
    from .accounts import Accounts  # noqa: PLC0415

    accounts = Accounts(database)
    wanted = {"flask-secret-key": random_password(), "admin-password": random_password()}
    accounts.ensure_administrator(secrets.ensure(settings.namespace, SERVER_SECRET, wanted)["admin-password"])
    for team in settings.teams:
        credentials = secrets.ensure(team, TEAM_SECRET, _credentials(team))
        accounts.ensure_team(team, credentials["MLFLOW_TRACKING_PASSWORD"])
        print(f"team {team}: account and workspace are up to date", flush=True)


def _credentials(team: str) -> dict[str, str]:
    return {
        "MLFLOW_TRACKING_USERNAME": team,
        "MLFLOW_TRACKING_PASSWORD": random_password(),
        "MLFLOW_WORKSPACE": team,
    }
