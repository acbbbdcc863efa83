"""Settings from environment variables; none of them holds the database password."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class EnvironmentVariableError(Exception):
    """An environment variable is missing or invalid; the message names it."""


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise EnvironmentVariableError(f"{name} is not set; the manifest of the MLflow pod sets it")
    return value


def _number(environment: Mapping[str, str], name: str) -> int:
    value = _text(environment, name)
    if not value.isdigit() or int(value) == 0:
        raise EnvironmentVariableError(f"{name} is {value!r}; it must be an integer above 0")
    return int(value)


def _number_or(environment: Mapping[str, str], name: str, default: int) -> int:
    return _number(environment, name) if name in environment else default


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    """Address of the database server, and the secret of its master user.

    Attributes:
        host: host name.
        port: port.
        secret: ARN or name of the Secrets Manager secret, with `username` and `password`.
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
            EnvironmentVariableError: one is missing or invalid.
        """
        return cls(
            host=_text(environment, "MLFLOW_DB_HOST"),
            port=_number(environment, "MLFLOW_DB_PORT"),
            secret=_text(environment, "MLFLOW_DB_SECRET_ARN"),
            region=_text(environment, "AWS_REGION"),
        )


@dataclass(frozen=True, kw_only=True)
class BootstrapSettings:
    """Accounts to create.

    Attributes:
        teams: namespaces of the teams.
        namespace: namespace of the server.
    """

    teams: tuple[str, ...]
    namespace: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> BootstrapSettings:
        """Read POD_NAMESPACE, and TEAMS, separated by commas; without teams only the administrator gets an account.

        Raises:
            EnvironmentVariableError: POD_NAMESPACE is missing.
        """
        return cls(teams=_names(environment.get("TEAMS", "")), namespace=_text(environment, "POD_NAMESPACE"))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of the server.

    Attributes:
        bucket: S3 bucket for artifacts.
        allowed_hosts: allowed Host headers, without port; others are rejected (DNS rebinding).
        workers: number of worker processes.
        session_key: key that signs sessions and CSRF tokens; the same in all replicas.
        host: listen address.
        port: listen port.
        refresh_seconds: interval of credential refreshes.
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

        LISTEN_HOST, LISTEN_PORT and LOGIN_REFRESH_SECONDS are optional. The first two have no MLFLOW_ prefix, because
        Kubernetes sets MLFLOW_PORT to a URL for the Service `mlflow`.

        Raises:
            EnvironmentVariableError: one is missing or invalid.
        """
        return cls(
            bucket=_text(environment, "MLFLOW_ARTIFACT_BUCKET"),
            allowed_hosts=_names(_text(environment, "MLFLOW_ALLOWED_HOSTS")),
            workers=_number(environment, "MLFLOW_WORKERS"),
            session_key=_text(environment, "MLFLOW_FLASK_SERVER_SECRET_KEY"),
            # Network policies limit access to the pod's address.
            host=environment.get("LISTEN_HOST", "0.0.0.0"),  # noqa: S104
            port=_number_or(environment, "LISTEN_PORT", 5000),
            refresh_seconds=_number_or(environment, "LOGIN_REFRESH_SECONDS", 60),
        )


@dataclass(frozen=True, kw_only=True)
class CleanupSettings:
    """What a cleanup deletes.

    Attributes:
        bucket: S3 bucket for artifacts.
        older_than_days: days since the deletion after which it is final.
        storage_bytes: storage that the database may grow to.
        is_preview: list what would be deleted, and delete nothing.
    """

    bucket: str
    older_than_days: int
    storage_bytes: int
    is_preview: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, is_preview: bool) -> CleanupSettings:
        """Read MLFLOW_ARTIFACT_BUCKET, CLEANUP_OLDER_THAN_DAYS and CLEANUP_STORAGE_GIB.

        Raises:
            EnvironmentVariableError: one is missing or invalid.
        """
        return cls(
            bucket=_text(environment, "MLFLOW_ARTIFACT_BUCKET"),
            older_than_days=_number(environment, "CLEANUP_OLDER_THAN_DAYS"),
            storage_bytes=_number(environment, "CLEANUP_STORAGE_GIB") * 2**30,
            is_preview=is_preview,
        )


@dataclass(frozen=True, kw_only=True)
class BackupSettings:
    """Where a backup is written.

    Attributes:
        bucket: S3 bucket for artifacts.
    """

    bucket: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> BackupSettings:
        """Read MLFLOW_ARTIFACT_BUCKET.

        Raises:
            EnvironmentVariableError: it is missing.
        """
        return cls(bucket=_text(environment, "MLFLOW_ARTIFACT_BUCKET"))


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """What a drill restores, and how much of the artifacts it reads.

    Attributes:
        bucket: S3 bucket for artifacts.
        backup: name of the backup; None for the newest.
        keeps: keep the restored databases, under other names than those of a drill.
        artifacts_to_read: number of artifact versions to read to the end; all are looked up.
        storage_bytes: storage that the database server may grow to.
    """

    bucket: str
    backup: str | None
    keeps: bool
    artifacts_to_read: int
    storage_bytes: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, backup: str | None, keeps: bool) -> DrillSettings:
        """Read MLFLOW_ARTIFACT_BUCKET, DRILL_ARTIFACTS and DRILL_STORAGE_GIB.

        Raises:
            EnvironmentVariableError: one is missing or invalid.
        """
        return cls(
            bucket=_text(environment, "MLFLOW_ARTIFACT_BUCKET"),
            backup=backup,
            keeps=keeps,
            artifacts_to_read=_number(environment, "DRILL_ARTIFACTS"),
            storage_bytes=_number(environment, "DRILL_STORAGE_GIB") * 2**30,
        )
