"""The simulated fleet: it exports the whole inventory to a real Prometheus, and is healthy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from observability.benchmarks.fleet.__main__ import main
from observability.benchmarks.fleet.axes import Axis, label_sets
from observability.benchmarks.fleet.measure import summarize
from observability.benchmarks.fleet.prometheus import Prometheus, recording
from observability.benchmarks.fleet.report import report, request_bytes, write
from observability.benchmarks.fleet.scrapes import OMITTED
from observability.benchmarks.fleet.server import Exporters, serving
from observability.benchmarks.fleet.shape import Fleet
from observability.metrics.scraped import SCRAPED
from tests.engines import prometheus
from tests.waiting import wait_until

pytestmark = pytest.mark.monitoring

TINY = Fleet(nodes=5, runs=2, vcpus=2)

_INTERVAL = 1.0
_SECONDS = 120.0
_MISSING = {
    "JobMetricsMissing",
    "KubernetesMetricsMissing",
    "KueueMetricsMissing",
    "GpuMetricsMissing",
    "ControllerDown",
}
"""Alerts that are pending until everything has been scraped once."""


@dataclass(frozen=True)
class Recorded:
    """A Prometheus that scrapes the tiny fleet."""

    server: Prometheus
    exporters: Exporters


@pytest.fixture(scope="module")
def program() -> Path:
    """Prometheus; skips without it."""
    return prometheus.program()


@pytest.fixture(scope="module")
def recorded(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A Prometheus that has scraped every target of the tiny fleet."""
    folder = tmp_path_factory.mktemp("fleet")
    with (
        serving(TINY, folder) as exporters,
        recording(program, exporters.served, folder, interval_seconds=_INTERVAL) as server,
    ):
        targets = sum(served.targets for served in exporters.served)
        wait_until(lambda: server.sums("count(up == 1)", "").get("", 0) > targets, seconds=_SECONDS)
        yield Recorded(server, exporters)


def test_every_metric_of_the_inventory_arrives_with_its_labels(recorded: Recorded) -> None:
    made_by_prometheus = {"up", "ALERTS"}
    expected = {metric for metric in SCRAPED if metric.name not in OMITTED | made_by_prometheus}
    for metric in expected:
        for name, labels in metric.series().items():
            # The operator's labels of Prometheus itself are not simulated.
            wanted = labels if metric.source.component != "Prometheus" else set(metric.labels)
            bounded = sorted(wanted - {"pod", "container"})  # a kubelet is no pod
            selector = name + "{" + ",".join(f'{label}!=""' for label in bounded) + "}"
            assert recorded.server.sums(f"count({selector})", "").get("", 0) > 0, selector


def test_a_healthy_fleet_raises_no_alert(recorded: Recorded) -> None:
    ratio = "count(run:ray_rtp_train_data_wait:ratio_rate10m > 0)"
    wait_until(lambda: recorded.server.sums(ratio, "").get("", 0) == TINY.runs, seconds=_SECONDS)
    assert set(recorded.server.sums("count by (alertname) (ALERTS)", "alertname")) <= _MISSING


def test_a_measurement_has_series_samples_memory_and_times_of_rules_and_is_written(
    recorded: Recorded, tmp_path: Path
) -> None:
    moments = [recorded.server.moment()]

    def has_gone_on() -> bool:
        moments[1:] = [recorded.server.moment()]
        return moments[1].samples > moments[0].samples and moments[1].groups.get("training", 0) > 0

    wait_until(has_gone_on, seconds=_SECONDS)
    result = summarize(TINY, "3.14.0", recorded.exporters, recorded.server, moments, server_cpu=0.0)
    assert result.targets > 5 * TINY.nodes
    assert result.series > sum(served.series for served in recorded.exporters.served)
    assert result.samples_per_second > 0
    assert result.moments[-1].failed == 0
    assert 2**20 < result.moments[-1].anonymous <= result.peak
    assert {"training", "gpu-hardware"} <= set(result.slowest_groups())
    assert any("the stack requests 4 GiB: enough" in line for line in report(result, request_bytes(TINY)))
    overloaded = replace(result, expected_per_second=1e9)
    assert any("DID NOT KEEP UP" in line for line in report(overloaded, request_bytes(TINY)))
    write(result, request_bytes(TINY), tmp_path / "bench" / "one.json")
    assert json.loads((tmp_path / "bench" / "one.json").read_text())["series"] == result.series
    assert (tmp_path / "bench" / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_fleet_that_cannot_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, expected in {
        "--nodes 1": "nodes = 1: must be from 2 to 10,000",
        "--nodes 10 --runs 10": "runs = 10: each needs a GPU node of its own, and 10 nodes have 9 of them",
        "--minutes 0": "minutes = 0: must be from 1, for two scrapes of every target, to 1,440",
    }.items():
        monkeypatch.setattr(sys, "argv", ["fleet", *arguments.split()])
        assert main() == 2
        assert expected in capsys.readouterr().err
    fleet = Fleet(nodes=25, runs=7)
    used = [worker.node for run in fleet.training for worker in run.workers]
    assert sorted(used) == sorted(fleet.gpu_nodes), "each works for one run"
    assert {len(run.workers) for run in fleet.training} == {3, 4}
    with pytest.raises(LookupError, match="no values for the label 'colour'"):
        list(label_sets(("gpu", "colour"), [Axis.of("gpu", range(8))]))


def test_without_prometheus_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fleet", "--nodes", "5", "--runs", "1"])
    monkeypatch.setenv("PROMETHEUS", "/nowhere/prometheus")
    assert main() == 3
    assert "PROMETHEUS=/nowhere/prometheus is not executable" in capsys.readouterr().err
