"""The exporters serve the inventory, also through Ray's metrics agent, and free their ports."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from observability.metrics.inventory import INVENTORY
from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.recorder import MetricsAddressError
from platform_charts.images.job_progress import figures, searches
from tests.distribution import RAY
from tests.engines.ray_cluster import run_program
from tests.observability.metrics.exported import families, record_everything


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    server = PrometheusRecorder(host="127.0.0.1", port=0)
    yield server
    server.close()


def test_the_exporter_serves_exactly_the_inventory(recorder: PrometheusRecorder) -> None:
    record_everything(recorder)
    served = families(recorder.url)
    assert {name: (family.type, family.documentation) for name, family in served.items()} == {
        spec.name: (spec.kind, spec.help) for spec in INVENTORY
    }
    labels = {name: {frozenset(one.labels) - {"le"} for one in family.samples} for name, family in served.items()}
    assert labels == {spec.name: {frozenset(spec.labels)} for spec in INVENTORY}


@pytest.mark.xdist_group(RAY)
def test_rays_metrics_agent_exports_the_same_names(tmp_path: Path) -> None:
    run_program("tests.observability.metrics.record_into_ray", str(tmp_path), metrics_interval=1000)
    ours, later, closed = (_ours(tmp_path / name) for name in ("first.txt", "later.txt", "closed.txt"))
    parsed = {(f"{family.name}_total" if family.type == "counter" else family.name): family.type for family in ours}
    assert parsed == {f"ray_{spec.name}": spec.kind for spec in INVENTORY if spec.name not in _NOT_EXPORTED_BY_RAY}
    # `platform_charts.images.job_progress` tells the processes of a restarted job apart by what their gauges share.
    for gauges in ((figures.STEP, figures.PLANNED, figures.NEWEST), searches.GAUGES):
        samples = [one for family in ours if family.name in gauges for one in family.samples]
        own = [{name: text for name, text in one.labels.items() if name not in searches.LABELS} for one in samples]
        assert own == [own[0]] * len(own)
        assert "WorkerId" in own[0]
    # What was set once stays, and goes with the recorder: the ranks of a search outlive the runs of its trials.
    assert {family.name for family in later} == {family.name for family in ours}
    assert "gauge" not in {family.type for family in closed if family.samples}


def _ours(file: Path) -> list[Metric]:
    found = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    return [family for family in found if family.name.startswith("ray_rtp_")]


_NOT_EXPORTED_BY_RAY = {"rtp_train_nonfinite_steps_total", "rtp_train_checkpoints_refused_total"}
"""Counters without an increment: Ray exports a counter only after its first increment."""


def test_an_address_that_cannot_be_served_is_rejected() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(MetricsAddressError, match=f"on 127.0.0.1:{port}: Address already in use"):
            PrometheusRecorder(host="127.0.0.1", port=port)
    with pytest.raises(MetricsAddressError, match=r"on 198\.51\.100\.1:0: Cannot assign requested address"):
        PrometheusRecorder(host="198.51.100.1", port=0)


def test_a_closed_exporter_frees_its_port_and_ends_its_thread() -> None:
    before = threading.active_count()
    first = PrometheusRecorder(host="127.0.0.1", port=0)
    port = int(first.url.rpartition(":")[2].removesuffix("/metrics"))
    first.close()
    assert threading.active_count() == before
    PrometheusRecorder(host="127.0.0.1", port=port).close()
