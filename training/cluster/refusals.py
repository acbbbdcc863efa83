"""The API server's refusals in words one can act on: a table of what it says, what it means, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from infra.spec.manifest import Manifest


class Meaning(NamedTuple):
    """What a refusal means; `remedy` is empty where the message says it all."""

    message: str
    remedy: str


_Told = Callable[[re.Match[str], str], Meaning]


def explain(status: Manifest, *, doing: str) -> Meaning:
    """The meaning of the `Status` object of a refusal.

    Args:
        status: what the API server answered; `code` and `message` are read.
        doing: what was tried, e.g. `create RayJob research/digits`.
    """
    message, code = " ".join(str(status.get("message", "")).split()), int(status.get("code", 0))
    for pattern, told in _TABLE:
        match = pattern.search(message)
        if match is not None:
            return told(match, doing)
    if code in _CODES:
        what, remedy = _CODES[code]
        return Meaning(f"cannot {doing}: {what}{f': {message}' if message else ''}", remedy)
    return Meaning(f"cannot {doing}: the API server answers {code}: {message}", "")


def _quota(match: re.Match[str], doing: str) -> Meaning:
    asked, used, limit = (match[name] for name in ("asked", "used", "limit"))
    counts_jobs = "count/rayjobs.ray.io" in asked or "configmaps" in asked
    return Meaning(
        f"cannot {doing}: quota {match['quota']} of the namespace is used up: asked {asked}, in use {used}, limit {limit}",
        "ended and stopped jobs count until they are deleted: kubectl delete rayjob NAME; --keep-days has them go sooner"
        if counts_jobs
        else "stop a job that is not needed, ask for less, or raise the team's quota in the environment's file",
    )


def _not_allowed(match: re.Match[str], doing: str) -> Meaning:
    where = f" in namespace {match['namespace']}" if match["namespace"] else ""
    return Meaning(
        f"cannot {doing}: user {match['user']} may not {match['verb']} {match['what']}{where}",
        "use a role of the team, or add yours to the team's roles in the environment's file",
    )


def _webhook_denied(match: re.Match[str], doing: str) -> Meaning:
    return Meaning(f"cannot {doing}: admission webhook {match['hook']} refuses it: {match['why']}", "")


def _webhook_silent(match: re.Match[str], doing: str) -> Meaning:
    return Meaning(
        f"cannot {doing}: admission webhook {match['hook']} does not answer: {match['why']}",
        "the platform is starting or being upgraded: try again in a minute",
    )


def _no_namespace(match: re.Match[str], doing: str) -> Meaning:
    return Meaning(
        f"cannot {doing}: namespace {match['namespace']} does not exist",
        "bring the stack up with this version, which makes the teams' namespaces",
    )


_TABLE: tuple[tuple[re.Pattern[str], _Told], ...] = (
    (
        re.compile(
            r"exceeded quota: (?P<quota>[\w.-]+), requested: (?P<asked>\S+), used: (?P<used>\S+), limited: (?P<limit>\S+)"
        ),
        _quota,
    ),
    (
        re.compile(
            r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<what>[^"]+)"'
            r'(?:.*? in the namespace "(?P<namespace>[^"]+)")?'
        ),
        _not_allowed,
    ),
    (re.compile(r'admission webhook "(?P<hook>[^"]+)" denied the request: (?P<why>.*)'), _webhook_denied),
    (re.compile(r'failed calling webhook "(?P<hook>[^"]+)": (?P<why>.*)'), _webhook_silent),
    (re.compile(r'^namespaces "(?P<namespace>[^"]+)" not found'), _no_namespace),
)

_CODES = {
    401: (
        "the cluster does not know these credentials",
        "sign in, e.g. `aws sso login`, with a role that the environment's file gives access",
    ),
    403: ("it is forbidden", ""),
    404: (
        "the cluster does not know this kind of object",
        "bring the stack up with this version, which installs KubeRay and Kueue",
    ),
    422: (
        "the cluster takes it for invalid",
        "the definitions on the cluster are of another version: bring the stack up with this one",
    ),
}
