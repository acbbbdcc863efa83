"""Container logs of every pod: where they are shipped to, and for how long they are kept."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from infra.spec.matching import Matching
from infra.spec.section import Section
from infra.spec.settings.retention import LogDays

LogDestination = Literal["cloudwatch", "loki", "none"]


class LogSettings(Section):
    """Logs that outlive their pods."""

    destination: LogDestination = Field(
        "cloudwatch",
        description="cloudwatch: a log group of the stack; loki: the server at loki_url; none: the logs end with the pods.",
    )
    loki_url: (
        Annotated[
            str,
            Matching(
                r"^https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$",
                "must be http(s)://HOST or http(s)://HOST:PORT, without a path",
            ),
        ]
        | None
    ) = Field(
        None,
        description="URL of Loki, reachable from the pods, without a path; required for destination loki, null otherwise.",
    )
    retention_days: LogDays = Field(
        90, description="Retention of the CloudWatch log group in days; Loki has its own retention."
    )


def url_port(url: str) -> int:
    """The port of a URL, by default that of its scheme."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
