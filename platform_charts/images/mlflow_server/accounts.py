"""MLflow accounts: an administrator, and for each team an account that manages its workspace.

A workspace has its own experiments, models and artifacts. Requests are scoped to the account's workspace, so a team sees
nothing of another team, not even that a name is taken.
"""

from __future__ import annotations

from mlflow.entities.workspace import Workspace
from mlflow.server.auth.permissions import MANAGE
from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore as AccountStore
from mlflow.store.workspace.sqlalchemy_store import SqlAlchemyStore as WorkspaceStore

from .database import Database
from .names import ACCOUNTS, ADMINISTRATOR, RUNS


class Accounts:
    """MLflow's tables of accounts and workspaces, via the server's own classes; both schemas must be up to date."""

    def __init__(self, database: Database) -> None:
        self._accounts = AccountStore()
        self._accounts.init_db(database.uri(ACCOUNTS))
        self._workspaces = WorkspaceStore(database.uri(RUNS))

    def ensure_administrator(self, password: str) -> None:
        """Create the administrator or update the password."""
        self._ensure_account(ADMINISTRATOR, password, is_admin=True)

    def ensure_team(self, name: str, password: str) -> None:
        """Create a team's workspace and account, or update the password."""
        if name not in {workspace.name for workspace in self._workspaces.list_workspaces()}:
            self._workspaces.create_workspace(Workspace(name=name))
        self._ensure_account(name, password, is_admin=False)
        self._accounts.set_workspace_permission(name, name, MANAGE.name)

    def _ensure_account(self, name: str, password: str, *, is_admin: bool) -> None:
        if not self._accounts.has_user(name):
            self._accounts.create_user(name, password, is_admin=is_admin)
        elif not self._accounts.authenticate_user(name, password):
            self._accounts.update_user(name, password=password)
