"""Errors of what is done on a cluster."""

from __future__ import annotations

from infra.spec.errors import RefusedError


class ClusterRefusedError(RefusedError):
    """The cluster, or what is known of it, does not allow what was asked (exit status 3)."""


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
