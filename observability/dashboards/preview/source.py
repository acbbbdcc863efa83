"""Queries to Prometheus's HTTP API."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

import numpy as np
import numpy.typing as npt

from infra.spec.errors import PlatformError, RefusedError, SettingsError

Floats = npt.NDArray[np.float64]
_SECONDS = 60


@dataclass(frozen=True)
class Series:
    """A series of a result: its labels, the times of its samples in Unix seconds, and their values; both (n,)."""

    labels: Mapping[str, str]
    times: Floats
    values: Floats

    @property
    def newest(self) -> float:
        """Its newest value."""
        return float(self.values[-1])


@dataclass(frozen=True, kw_only=True)
class Period:
    """A period with the distance of two samples, in Unix seconds."""

    start: float
    end: float
    step: float


class MetricsSource:
    """A Prometheus.

    Args:
        url: its address, e.g. http://localhost:9090.

    Raises:
        SettingsError: not an address of HTTP.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"--prometheus={url} is not an http:// or https:// address")
        self.url = url.rstrip("/")

    def over(self, expression: str, period: Period) -> Sequence[Series]:
        """The series of an expression over a period.

        Raises:
            RefusedError: Prometheus does not answer.
            PlatformError: it refuses the expression.
        """
        found = self._get("query_range", query=expression, start=period.start, end=period.end, step=period.step)
        return [_series(one, one["values"]) for one in found]

    def at(self, expression: str, time: float) -> Sequence[Series]:
        """The series of an expression at one time, with one sample each; errors as of `over`."""
        return [_series(one, [one["value"]]) for one in self._get("query", query=expression, time=time)]

    def _get(self, path: str, **parameters: str | float) -> Any:  # noqa: ANN401 - JSON
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - checked above
                return json.load(answer)["data"]["result"]
        except HTTPError as error:
            raise PlatformError(f"{self.url} refused {parameters['query']}: {error.read().decode()[:500]}") from error
        except (OSError, ValueError) as error:
            remedy = "kubectl -n monitoring port-forward service/kube-prometheus-stack-prometheus 9090"
            raise RefusedError(f"no Prometheus answers at {self.url}: {error}", remedy=remedy) from error


def _series(found: Mapping[str, Any], samples: Sequence[tuple[float, str]]) -> Series:
    times = np.array([float(time) for time, _ in samples])
    return Series(found["metric"], times, np.array([float(value) for _, value in samples]))
