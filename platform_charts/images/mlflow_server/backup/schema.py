"""MLflow's schemas, made by its own migrations, and its own stores as a test of what was restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from mlflow.entities import Experiment, ViewType
from mlflow.exceptions import MlflowException
from mlflow.server.auth.db import utils as accounts_schema
from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore as AccountStore
from mlflow.store.db import utils as runs_schema
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialTables
from mlflow.store.tracking.sqlalchemy_workspace_store import WorkspaceAwareSqlAlchemyStore
from mlflow.store.workspace.sqlalchemy_store import SqlAlchemyStore as WorkspaceStore
from mlflow.utils.workspace_context import WorkspaceContext
from sqlalchemy.exc import SQLAlchemyError

from ..names import RUNS
from ..workspaces import workspaces_enabled
from .errors import BackupError, RefusedError

HEAD = "head"
"""Revision of the installed version of MLflow."""


def check_revision(database: str, revision: str) -> None:
    """Refuse a revision that this version of MLflow does not have, because the backup is of a later one.

    Raises:
        RefusedError: it does not have it.
    """
    try:
        ScriptDirectory.from_config(_config(database, "")).get_revision(revision)
    except CommandError as error:
        raise RefusedError(
            f"the schema of {database} in the backup has revision {revision}, which this MLflow does not know: restore "
            "with the platform version that made the backup, or a later one"
        ) from error


def migrate_schema(database: str, uri: str, revision: str = HEAD) -> None:
    """Create the schema of an empty database, or migrate it, to a revision.

    Raises:
        BackupError: the server rejects a statement.
    """
    with _engine(uri) as engine:
        try:
            if database != RUNS:
                accounts_schema.migrate(engine, revision)
                return
            if not sqlalchemy.inspect(engine).get_table_names():
                InitialTables.metadata.create_all(engine)
            config = _config(database, uri)
            with engine.begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, revision)
        except SQLAlchemyError as error:
            raise BackupError(f"the schema of {database} cannot be migrated to revision {revision}: {error}") from error


def count_by_mlflow(runs_uri: str, accounts_uri: str) -> dict[str, int]:
    """Open restored databases as the server does, and search in each workspace; returns how many MLflow finds of what.

    MLflow makes a default experiment where there is none.

    Raises:
        BackupError: MLflow does not open them.
    """
    try:
        with _engine(runs_uri) as engine:
            runs_schema._verify_schema(engine)  # noqa: SLF001 - what the server checks at its start
        with workspaces_enabled():
            experiments, with_runs = _count_experiments(runs_uri)
        accounts = AccountStore()
        accounts.init_db(accounts_uri)
        users = len(accounts.list_users())
    except (MlflowException, SQLAlchemyError) as error:
        raise BackupError(f"MLflow does not open what was restored: {error}") from error
    return {"experiments": experiments, "experiments with runs": with_runs, "users": users}


def count_experiments_with_runs(cursor: Any) -> int:  # noqa: ANN401 - psycopg2 has no types
    """Number of experiments with a run, as a query that asks no store of MLflow's."""
    cursor.execute("SELECT count(DISTINCT experiment_id) FROM runs")
    [(count,)] = cursor.fetchall()
    return int(count)


def _count_experiments(uri: str) -> tuple[int, int]:
    """Number of the experiments of all workspaces, and of those with a run."""
    store = WorkspaceAwareSqlAlchemyStore(uri, "mlflow-artifacts:/")
    experiments = with_runs = 0
    for workspace in WorkspaceStore(uri).list_workspaces():
        with WorkspaceContext(workspace.name):
            for experiment in _experiments(store):
                experiments += 1
                with_runs += len(store.search_runs([experiment.experiment_id], "", ViewType.ALL, max_results=1))
    return experiments, with_runs


def _experiments(store: WorkspaceAwareSqlAlchemyStore) -> Iterator[Experiment]:
    token = None
    while True:
        page = store.search_experiments(view_type=ViewType.ALL, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _config(database: str, uri: str) -> Config:
    module = runs_schema if database == RUNS else accounts_schema
    config: Config = module._get_alembic_config(uri)  # noqa: SLF001 - its migrations have no other entry point
    return config


@contextmanager
def _engine(uri: str) -> Iterator[sqlalchemy.engine.Engine]:
    engine = sqlalchemy.create_engine(uri)
    try:
        yield engine
    finally:
        engine.dispose()
