"""The UIs by host name: who may use each, and which requests do not come from a page of its own.

The proxy logs people in by what their browser sends with every request, so a page of another site could make the browser change
something as well. Browsers say where a request comes from: Origin (RFC 6454) accompanies whatever can change something, and
Sec-Fetch-Site (W3C, "Fetch Metadata Request Headers") every request. Other UIs of the platform count as other sites: what one
team stores is not for the eyes of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from .token import Person

_READING = frozenset({"GET", "HEAD"})
_OWN = frozenset({"same-origin", "none"})
"""From a page of the host itself, or from no page: an address that somebody has typed."""

_ACCOUNTS = re.compile(r"/mlflow/+(users|roles)(/|$)")
"""MLflow's requests about accounts: whoever sends them acts as the whole team, so one person could lock out its jobs."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A UI at a host name of its own.

    Attributes:
        host: the host name.
        title: what it is, in messages.
        upstream: its URL inside the cluster, without a path.
        groups: groups whose members may use it.
        team: whose login it takes; None for a UI that takes none.
    """

    host: str
    title: str
    upstream: str
    groups: frozenset[str]
    team: str | None

    @classmethod
    def parse(cls, text: str) -> Site:
        """A site from JSON with its attributes.

        Raises:
            ValueError: it is not one.
        """
        given = json.loads(text)
        try:
            found = cls(**{**given, "groups": frozenset(given["groups"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{text} is not a site: {error}") from error
        if not found.groups or urlsplit(found.upstream).scheme != "http":
            raise ValueError(f"{text} is not a site: it needs groups, and an upstream http://HOST:PORT")
        return found

    def admits(self, person: Person) -> bool:
        """Whether a person may use it."""
        return not self.groups.isdisjoint(person.groups)


def refusal_of(site: Site, *, method: str, path: str, fields: Mapping[str, str]) -> str:
    """Why a request is refused, whoever it is from; empty if it is not.

    Args:
        site: where it goes.
        method: its method.
        path: its path, encoded as it was sent.
        fields: its fields; aiohttp's mapping ignores the case of names.
    """
    origin, came_from = fields.get("Origin"), fields.get("Sec-Fetch-Site", "none")
    is_reading, is_own = method in _READING, came_from in _OWN
    if origin not in {None, f"https://{site.host}"} or not (is_reading or origin):
        return "only pages of this host may send it"
    if not is_own and not (is_reading and fields.get("Sec-Fetch-Mode") == "navigate"):
        return "only pages of this host may send it"
    if not path.startswith("/"):
        return "its target must be a path"
    if site.team is not None and not is_reading and _ACCOUNTS.search(unquote(path)):
        return "accounts and roles are managed by the platform"
    return ""
