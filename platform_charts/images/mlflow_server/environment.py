"""What the program is told: everything comes from environment variables, and none of them holds a secret of the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class EnvironmentVariableError(Exception):
    """An environment variable is absent or wrong; the message names it."""


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise EnvironmentVariableError(f"{name} is not set; the manifest of the MLflow pod sets it")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not value.isdigit() or int(value) == 0:
        raise EnvironmentVariableError(f"{name} is {value!r}; it must be a whole number above 0")
    return int(value)


def _number_or(environment: Mapping[str, str], name: str, default: int) -> int:
    return _number(environment, name) if name in environment else default


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    """Where the database server is, and where its master user's login lies.

    Attributes:
        host: host name.
        port: port.
        secret: ARN or name of the Secrets Manager secret that RDS keeps, with `username` and `password`.
        region: AWS region of the secret.
    """

    host: str
    port: int
    secret: str
    region: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DatabaseSettings:
        """Read MLFLOW_DB_HOST, MLFLOW_DB_PORT, MLFLOW_DB_SECRET_ARN and AWS_REGION.

        Raises:
            EnvironmentVariableError: one is absent or wrong.
        """
        return cls(
            host=_text(environment, "MLFLOW_DB_HOST"),
            port=_number(environment, "MLFLOW_DB_PORT"),
            secret=_text(environment, "MLFLOW_DB_SECRET_ARN"),
            region=_text(environment, "AWS_REGION"),
        )


@dataclass(frozen=True, kw_only=True)
class BootstrapSettings:
    """Who gets an account.

    Attributes:
        teams: namespaces of the teams.
        namespace: namespace of the server.
    """

    teams: tuple[str, ...]
    namespace: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> BootstrapSettings:
        """Read POD_NAMESPACE, and TEAMS, separated by commas; without a team there is the administrator only.

        Raises:
            EnvironmentVariableError: POD_NAMESPACE is absent.
        """
        return cls(teams=_names(environment.get("TEAMS", "")), namespace=_text(environment, "POD_NAMESPACE"))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How the server runs.

    Attributes:
        bucket: S3 bucket of the artifacts.
        allowed_hosts: host names it may be called by, without port; others are refused (DNS rebinding).
        workers: worker processes.
        session_key: signs sessions and CSRF tokens; the same in all replicas.
        host: address it listens at.
        port: port it listens at.
        refresh_seconds: how often the database's login is taken out of its secret again.
    """

    bucket: str
    allowed_hosts: tuple[str, ...]
    workers: int
    session_key: str
    host: str
    port: int
    refresh_seconds: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ServerSettings:
        """Read MLFLOW_ARTIFACT_BUCKET, MLFLOW_ALLOWED_HOSTS, MLFLOW_WORKERS and MLFLOW_FLASK_SERVER_SECRET_KEY.

        LISTEN_HOST, LISTEN_PORT and LOGIN_REFRESH_SECONDS may be set. The first two have names of their own because
        Kubernetes sets MLFLOW_PORT to a URL, for the Service that is called mlflow.

        Raises:
            EnvironmentVariableError: one is absent or wrong.
        """
        return cls(
            bucket=_text(environment, "MLFLOW_ARTIFACT_BUCKET"),
            allowed_hosts=_names(_text(environment, "MLFLOW_ALLOWED_HOSTS")),
            workers=_number(environment, "MLFLOW_WORKERS"),
            session_key=_text(environment, "MLFLOW_FLASK_SERVER_SECRET_KEY"),
            # A pod is reached at its own address; network policies say by whom.
            host=environment.get("LISTEN_HOST", "0.0.0.0"),  # noqa: S104
            port=_number_or(environment, "LISTEN_PORT", 5000),
            refresh_seconds=_number_or(environment, "LOGIN_REFRESH_SECONDS", 60),
        )
