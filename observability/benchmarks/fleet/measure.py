"""Feeds a Prometheus with a fleet and records what it needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from observability.benchmarks.fleet.prometheus import Moment, Prometheus, cpu_seconds, recording, version_of
from observability.benchmarks.fleet.server import Exporters, serving
from observability.benchmarks.fleet.shape import Fleet

_POLL_SECONDS = 5.0

_KEPT_UP = 0.95
"""Share of the expected samples per second; the rest is how scrapes fall into the time of the measurement."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a Prometheus needed for a fleet.

    Attributes:
        version: of Prometheus.
        targets: number of targets.
        moments: its state over time.
        expected_per_second: samples per second that the targets have at their intervals.
        server_cpu: cores that the simulated exporters used.
        series_by_job: series of a scrape, summed by the label `job`.
        failing: targets whose newest scrape failed.
        alerts: alerts that were pending or firing at the end, by name.
    """

    fleet: Fleet
    version: str
    targets: int
    moments: Sequence[Moment]
    expected_per_second: float
    server_cpu: float
    series_by_job: Mapping[str, float]
    failing: int
    alerts: Mapping[str, float]

    @property
    def series(self) -> int:
        """Largest number of series in memory."""
        return max(moment.series for moment in self.moments)

    @property
    def peak(self) -> int:
        """Largest resident memory in bytes."""
        return max(moment.resident for moment in self.moments)

    @property
    def samples_per_second(self) -> float:
        """Samples stored per second in the second half."""
        first, last = self._half()
        return (last.samples - first.samples) / (last.seconds - first.seconds)

    @property
    def kept_up(self) -> bool:
        """Whether Prometheus stored what the targets had; if not, the machine was too small or too busy."""
        return self.samples_per_second >= _KEPT_UP * self.expected_per_second

    @property
    def cpu(self) -> float:
        """Cores that Prometheus used in the second half."""
        first, last = self._half()
        return (last.cpu_seconds - first.cpu_seconds) / (last.seconds - first.seconds)

    def slowest_groups(self) -> dict[str, tuple[float, float]]:
        """Median and longest seconds of the evaluations of each group of rules, slowest first."""
        times: dict[str, list[float]] = {}
        for moment in self.moments:
            for name, seconds in moment.groups.items():
                times.setdefault(name, []).append(seconds)
        summary = {name: (statistics.median(found), max(found)) for name, found in times.items()}
        return dict(sorted(summary.items(), key=lambda item: -item[1][1]))

    def dump(self) -> dict[str, Any]:
        """The result as JSON types."""
        computed = {
            "series": self.series,
            "peak_bytes": self.peak,
            "samples_per_second": self.samples_per_second,
            "kept_up": self.kept_up,
            "cpu": self.cpu,
            "groups": self.slowest_groups(),
        }
        return {**asdict(self), **computed}

    def _half(self) -> tuple[Moment, Moment]:
        return self.moments[len(self.moments) // 2 - 1], self.moments[-1]


def measure(fleet: Fleet, program: Path, *, seconds: float, folder: Path | None = None) -> Result:
    """Let a Prometheus scrape a fleet for some seconds, with the stack's intervals.

    Args:
        fleet: to simulate.
        program: Prometheus.
        seconds: from its start.
        folder: for the temporary data, which grows with the time; `$TMPDIR` by default.
    """
    with (
        TemporaryDirectory(prefix="rtp-bench-", dir=folder) as name,
        serving(fleet, Path(name)) as exporters,
        recording(program, exporters.served, Path(name)) as server,
    ):
        started, before = time.monotonic(), cpu_seconds(exporters.pid)
        moments = [server.moment()]
        while time.monotonic() - started < seconds or len(moments) < 2:
            time.sleep(_POLL_SECONDS)
            moments.append(server.moment())
        used = (cpu_seconds(exporters.pid) - before) / (time.monotonic() - started)
        return summarize(fleet, version_of(program), exporters, server, moments, server_cpu=used)


def summarize(
    fleet: Fleet,
    version: str,
    exporters: Exporters,
    server: Prometheus,
    moments: Sequence[Moment],
    *,
    server_cpu: float,
) -> Result:
    """What was seen, and what a Prometheus that still runs says of its targets and alerts."""
    return Result(
        fleet=fleet,
        version=version,
        targets=sum(served.targets for served in exporters.served),
        moments=moments,
        expected_per_second=sum(served.series / served.seconds for served in exporters.served),
        server_cpu=server_cpu,
        series_by_job=server.sums("sum by (job) (scrape_samples_scraped)", "job"),
        failing=int(sum(server.sums("count(up == 0)", "job").values())),
        alerts=server.sums("count by (alertname) (ALERTS)", "alertname"),
    )
