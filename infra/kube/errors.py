"""Errors of the Kubernetes API: the API server's own message, and a remedy."""

from __future__ import annotations

import json
import re
from typing import Any

from infra.spec.errors import RefusedError


class ApiError(RefusedError):
    """The API server answered with an error.

    Attributes:
        code: HTTP status.
        reason: Kubernetes's machine-readable reason, e.g. `AlreadyExists`; empty if a proxy answered instead.
        fields: paths of the fields that it is about.
    """

    def __init__(
        self, message: str, *, remedy: str = "", code: int = 0, reason: str = "", fields: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code
        self.reason = reason
        self.fields = fields

    @classmethod
    def from_body(cls, body: bytes | str, *, code: int, request: str) -> ApiError:
        """The error for a response.

        Args:
            body: a `Status` object, or anything else from a proxy.
            code: HTTP status.
            request: the request in words, e.g. `apply RayJob research/digits`.
        """
        text = body.decode(errors="replace") if isinstance(body, bytes) else body
        try:
            status: dict[str, Any] = json.loads(text)
            message = " ".join(str(status["message"]).split())
        except (ValueError, LookupError, TypeError):
            status, message = {}, " ".join(text.split())[:200]
        said = f": {message}" if message else ""
        causes = (status.get("details") or {}).get("causes") or ()
        return cls(
            f"cannot {request}: the API server answers {code}{said}",
            remedy=_remedy(message, code),
            code=code,
            reason=str(status.get("reason", "")),
            fields=tuple(one["field"] for one in causes if one.get("field")),
        )

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed: too many requests, or a server that is starting."""
        return self.code in {429, 500, 502, 503, 504}

    @property
    def is_quota_conflict(self) -> bool:
        """Whether a ResourceQuota changed while the API server charged it; the request itself was neither bad nor carried out."""
        return self.code == 409 and bool(_QUOTA_CONFLICT.search(self.args[0]))


class ConnectionLostError(RefusedError):
    """The API server did not answer, or the connection broke."""


def unknown_kind(api_version: str, kind: str) -> ApiError:
    """The error for a kind that the API server does not serve."""
    return ApiError(
        f"the API server does not serve {kind} of {api_version}", remedy=_BY_CODE[404], code=404, reason="NotFound"
    )


def _remedy(message: str, code: int) -> str:
    by_message = (remedy for pattern, remedy in _BY_MESSAGE if pattern.search(message))
    return next(by_message, _BY_CODE.get(code, ""))


_QUOTA_CONFLICT = re.compile(r"Operation cannot be fulfilled on resourcequotas ")

_BY_MESSAGE = (
    (
        _QUOTA_CONFLICT,
        "other jobs of the team start or end at the same time: try again in a minute",
    ),
    (
        re.compile(r"exceeded quota: .*(count/rayjobs\.ray\.io|configmaps)"),
        "finished and stopped jobs count until deleted: kubectl delete rayjob NAME; a lower --keep-days deletes them sooner",
    ),
    (
        re.compile(r"exceeded quota: "),
        "stop a job, request less, or raise the team's quota in the environment's file",
    ),
    (
        re.compile(r'User "[^"]+" cannot \w+ resource'),
        "use a role of the team, or add your role to teams.roles in the environment's file",
    ),
    (
        re.compile(r'failed calling webhook "'),
        "the operator that serves the webhook is starting or being upgraded: try again in a minute",
    ),
    (
        re.compile(r'^namespaces "[^"]+" not found'),
        "bring the stack up with this version, which creates the teams' namespaces",
    ),
    (re.compile(r'^[\w.-]+ "[^"]+" not found'), "check the name"),
)

_BY_CODE = {
    401: "sign in, e.g. `aws sso login`, with a role that the environment's file grants access",
    404: "bring the stack up with this version, which installs KubeRay and Kueue",
    422: "the cluster's CRDs may be of another version: bring the stack up with this one",
}
