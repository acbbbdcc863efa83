"""The alerts about a run that fire in local monitoring."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from observability.monitor import FiringAlert
from training.monitoring.places import URL_FILE
from training.monitoring.targets import LOCAL

_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class FiringAlerts:
    """Asks the Prometheus of local monitoring, if it serves.

    Attributes:
        run: name of the run.
        url_file: has the address.
    """

    run: str
    url_file: Path = URL_FILE

    def __call__(self) -> list[FiringAlert]:
        """The alerts that fire now, by name; none if there is no Prometheus, or it does not answer."""
        try:
            url = self.url_file.read_text(encoding="utf-8").strip()
            with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - loopback
                found = json.load(answer)["data"]["alerts"]
        except (OSError, ValueError, KeyError):
            return []
        return sorted((_alert(one) for one in found if self._is_ours(one)), key=lambda alert: alert.name)

    def _is_ours(self, alert: Mapping[str, Any]) -> bool:
        labels = alert["labels"]
        return (alert["state"], labels.get("namespace"), labels.get("run")) == ("firing", LOCAL, self.run)


def _alert(found: Mapping[str, Any]) -> FiringAlert:
    labels, annotations = found["labels"], found["annotations"]
    return FiringAlert(
        name=labels["alertname"],
        severity=labels["severity"],
        summary=annotations.get("summary", ""),
        action=annotations.get("description", ""),
    )
