"""Accounts of MLflow and what they may do: one administrator, and for each team an account that owns a workspace.

A workspace has its own experiments, models and artifacts. What a team's account asks for is looked up in its own workspace only, so a team
sees nothing of another one, not even that a name is taken.
"""

from __future__ import annotations

from mlflow.entities.workspace import Workspace
from mlflow.server.auth.permissions import MANAGE
from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore as AccountStore
from mlflow.store.workspace.sqlalchemy_store import SqlAlchemyStore as WorkspaceStore

from .database import Database
from .names import ACCOUNTS, ADMINISTRATOR, RUNS


class Accounts:
    """MLflow's own tables, through the classes its server uses; both schemas must be up to date."""

    def __init__(self, database: Database) -> None:
        self._accounts = AccountStore()
        self._accounts.init_db(database.uri(ACCOUNTS))
        self._workspaces = WorkspaceStore(database.uri(RUNS))

    def administrator(self, password: str) -> None:
        """See that the administrator logs in with this password."""
        self._account(ADMINISTRATOR, password, is_admin=True)

    def team(self, name: str, password: str) -> None:
        """See that a team has its workspace and logs in with this password."""
        if name not in {workspace.name for workspace in self._workspaces.list_workspaces()}:
            self._workspaces.create_workspace(Workspace(name=name))
        self._account(name, password, is_admin=False)
        self._accounts.set_workspace_permission(name, name, MANAGE.name)

    def _account(self, name: str, password: str, *, is_admin: bool) -> None:
        if not self._accounts.has_user(name):
            self._accounts.create_user(name, password, is_admin=is_admin)
        elif not self._accounts.authenticate_user(name, password):
            self._accounts.update_user(name, password=password)
