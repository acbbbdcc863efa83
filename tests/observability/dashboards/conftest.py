"""A Prometheus with recorded data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from observability.dashboards.preview.picture import View
from observability.dashboards.preview.source import MetricsSource
from tests.engines import prometheus
from tests.observability.dashboards import recording

_END = 1_789_999_140.0
_HOURS = 119 / 60
"""All of one block of Prometheus, which has two hours. promtool 2.42 refuses more than about a thousand series that extend over two
blocks: it takes samples in the second one to be out of order."""


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """Every metric of the inventory, for some hours of a made-up cluster."""
    folder = tmp_path_factory.mktemp("recorded")
    recording.write(folder / "samples.txt", end=_END, hours=_HOURS)
    with prometheus.recorded(folder / "samples.txt", folder=folder) as server:
        yield View(source=MetricsSource(server.url), end=_END, seconds=_HOURS * 3600, values={})
