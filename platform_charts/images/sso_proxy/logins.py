"""The accounts of teams, as whose members people use a UI with a login."""

from __future__ import annotations

import asyncio
import base64
from typing import Protocol

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

_SECONDS = 10.0


class LoginError(Exception):
    """A login cannot be read; the message says why."""


class Logins(Protocol):
    """Where logins come from."""

    async def basic(self, team: str) -> str:
        """The team's value of the field Authorization (RFC 7617, section 2); raises LoginError."""
        ...

    def forget(self, team: str) -> None:
        """Read the team's login again next time, because it was refused."""
        ...


class SecretLogins:
    """Logins in Secrets, one in the namespace of each team; implements `Logins`.

    Args:
        api: client of the API server, allowed to get these Secrets.
        secret: name of each of the Secrets.
        user: key of the user.
        password: key of the password.
    """

    def __init__(self, api: client.ApiClient, *, secret: str, user: str, password: str) -> None:
        self._core = client.CoreV1Api(api)
        self._secret = secret
        self._keys = (user, password)
        self._found: dict[str, str] = {}

    async def basic(self, team: str) -> str:
        """The team's login; see `Logins.basic`.

        Raises:
            LoginError: the Secret cannot be read, or lacks a key.
        """
        if team not in self._found:
            self._found[team] = await asyncio.to_thread(self._read, team)
        return self._found[team]

    def forget(self, team: str) -> None:
        """Read the team's login again next time; see `Logins.forget`."""
        self._found.pop(team, None)

    def _read(self, team: str) -> str:
        name = f"{team}/{self._secret}"
        try:
            secret = self._core.read_namespaced_secret(self._secret, team, _request_timeout=_SECONDS)
        except ApiException as error:
            raise LoginError(f"cannot read the Secret {name}: {error.status} {error.reason}") from error
        except HTTPError as error:
            raise LoginError(f"cannot read the Secret {name}: {type(error).__name__}: {error}") from error
        data: dict[str, str] = secret.data or {}
        missing = [key for key in self._keys if key not in data]
        if missing:
            raise LoginError(f"the Secret {name} lacks {' and '.join(missing)}")
        user, password = (base64.b64decode(data[key]) for key in self._keys)
        return f"Basic {base64.b64encode(user + b':' + password).decode()}"
