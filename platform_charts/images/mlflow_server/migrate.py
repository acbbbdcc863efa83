"""Bring databases, accounts and Secrets to this release. Run again, it changes nothing; cut off, it goes on where it was."""

from __future__ import annotations

from .cluster import Secrets, random_password
from .database import Database
from .environment import BootstrapSettings
from .names import ACCOUNTS, RUNS, SERVER_SECRET, TEAM_SECRET


def migrate(settings: BootstrapSettings, database: Database, secrets: Secrets) -> None:
    """Do everything that has to be done before this release's server starts.

    The server's Secret is made after the schemas: its pods cannot start without it, so none ever finds an empty database and begins to
    fill it as well. A Secret's password is what counts; where an account's differs, as after a cut, it is set to the Secret's.

    Raises:
        Exception: of botocore, psycopg2, kubernetes or MLflow; what was done stays done.
    """
    database.log_in()
    for name in (RUNS, ACCOUNTS):
        database.create(name)
    database.upgrade()
    # Imported here: it imports MLflow's server, which opens what is configured.
    from .accounts import Accounts  # noqa: PLC0415

    accounts = Accounts(database)
    wanted = {"flask-secret-key": random_password(), "admin-password": random_password()}
    accounts.administrator(secrets.ensure(settings.namespace, SERVER_SECRET, wanted)["admin-password"])
    for team in settings.teams:
        found = secrets.ensure(team, TEAM_SECRET, _credentials(team))
        accounts.team(team, found["MLFLOW_TRACKING_PASSWORD"])
        print(f"team {team}: account and workspace are there", flush=True)


def _credentials(team: str) -> dict[str, str]:
    return {
        "MLFLOW_TRACKING_USERNAME": team,
        "MLFLOW_TRACKING_PASSWORD": random_password(),
        "MLFLOW_WORKSPACE": team,
    }
