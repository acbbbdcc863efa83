"""Errors of what is done on a cluster, and the stack's errors in the trainer's manner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.spec.errors import StackError
from training.errors import ExitStatus, PlatformError


class ClusterRefusedError(PlatformError):
    """The cluster, or what is known of it, does not allow what was asked (exit status 3)."""

    status = ExitStatus.REFUSED


class ApiError(ClusterRefusedError):
    """The API server answered with an error.

    Attributes:
        code: HTTP status.
        reason: Kubernetes's own word for it, e.g. `AlreadyExists`; empty where a proxy answered in its stead.
    """

    def __init__(self, message: str, *, remedy: str = "", code: int = 0, reason: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.code = code
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered a little later: too many requests, or a server that starts."""
        return self.code in {429, 500, 502, 503, 504}


class LostConnectionError(ClusterRefusedError):
    """The API server did not answer, or stopped in the middle."""


@contextmanager
def in_our_manner() -> Iterator[None]:
    """Turn an error of the stack's parts into one that this command line prints, with the same exit status."""
    try:
        yield
    except StackError as error:
        own = PlatformError(str(error.args[0]), remedy=error.remedy)
        own.status = ExitStatus(error.status)
        raise own from error
