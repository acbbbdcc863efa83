"""The inventories of metrics agree with what exports them, also through Ray's agent; their names and labels follow the rules."""

from __future__ import annotations

import csv
import re
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from infra.spec.release import load_release
from observability.metrics.dcgm_counters import FILE, counters_file
from observability.metrics.exporters import open_recorder
from observability.metrics.external.gpu import GPU_METRICS
from observability.metrics.external.model import LABEL_BOUNDS, RAY_POD_MONITOR_LABELS
from observability.metrics.external.ray import RAY_METRICS
from observability.metrics.inventory import INVENTORY
from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.recorder import MetricsAddressError, NullRecorder
from observability.metrics.scraped import SCRAPED, series_by_name
from platform_charts.charts.dcgm_exporter import COUNTERS
from platform_charts.images.job_progress import figures, searches
from platform_charts.objects.monitoring import monitors
from tests.distribution import RAY
from tests.engines.ray_cluster import run_program
from tests.infra.aws.graphs import settings_of
from tests.observability.metrics.exported import families, record_everything

_UNBOUNDED = {"uid", "UUID", "WorkerId", "SessionName", "JobId", "pci_bus_id", "step", "error", "message", "ip", "pid"}


def test_every_metric_has_its_own_name_bounded_labels_and_a_source() -> None:
    assert len(series_by_name()) == sum(len(metric.series()) for metric in SCRAPED)
    used = {label for metric in SCRAPED for labels in metric.series().values() for label in labels}
    assert used == set(LABEL_BOUNDS)
    assert used & _UNBOUNDED == set()
    for metric in SCRAPED:
        assert metric.help.endswith("."), metric.name
        assert metric.source.file, metric.name
        assert (metric.source.version == "") == (metric.source.component == "trainer"), metric.name


def test_the_trainer_s_metrics_are_ours_and_those_of_ray_are_in_the_installed_one() -> None:
    ours = {metric.name for metric in SCRAPED if metric.source.component == "trainer"}
    assert ours == {f"ray_{spec.name}" for spec in INVENTORY}
    found = find_spec("ray")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    for metric in RAY_METRICS:
        source = (folder / metric.source.file).read_text(encoding="utf-8")
        assert metric.name.removeprefix("ray_") in source


def test_sources_have_the_minor_versions_of_the_release() -> None:
    """Exporters rename metrics between minor versions."""
    release = load_release()
    images = ("dcgm-exporter", "kube-state-metrics", "kuberay-operator", "kueue", "cluster-autoscaler", "prometheus")
    pinned = {"ray": release.stack.ray, "fluent-bit": str(release.images["fluent-bit"].tag)}
    pinned |= {name: str(release.images[name].tag) for name in images}
    pinned["kubernetes"] = release.kubernetes.version
    pinned["dcgm-exporter"] = pinned["dcgm-exporter"].split("-")[1]
    read = {metric.source.project.rpartition("/")[2]: metric.source.version for metric in SCRAPED}
    read["kuberay-operator"], read["cluster-autoscaler"] = read.pop("kuberay"), read.pop("autoscaler")
    del read["ray-train-platform"]
    assert {name: _minor(version) for name, version in read.items()} == {
        name: _minor(version) for name, version in pinned.items()
    }


def _minor(version: str) -> str:
    found = re.match(r"v?(\d+\.\d+)", version)
    assert found is not None, version
    return found[1]


def test_the_dcgm_exporter_exports_exactly_the_metrics_that_are_used() -> None:
    """`python -m observability.metrics.dcgm_counters` writes the file."""
    assert COUNTERS == FILE
    assert COUNTERS.read_text(encoding="utf-8") == counters_file()
    lines = [line for line in counters_file().splitlines() if not line.startswith("#")]
    assert {(name, kind) for name, kind, _ in csv.reader(lines)} == {(one.name, one.kind) for one in GPU_METRICS}


def test_the_pod_monitors_add_the_labels_of_ray() -> None:
    added = {
        rule["targetLabel"]
        for monitor in monitors(settings_of("prod"), load_release())
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
        for rule in endpoint["relabelings"]
    }
    assert added <= set(RAY_POD_MONITOR_LABELS)
    assert added == {"ray_io_cluster", "team", "training_job"}


def test_the_exporter_none_serves_no_metrics() -> None:
    assert open_recorder("none", host="127.0.0.1", port=0).url == ""


def test_names_labels_and_buckets_follow_the_rules_of_prometheus() -> None:
    names = [spec.name for spec in INVENTORY]
    assert len(set(names)) == len(names)
    for spec in INVENTORY:
        assert re.fullmatch(r"rtp_(train|search)_[a-z][a-z_]*[a-z]", spec.name)
        assert spec.name.endswith("_total") == (spec.kind == "counter"), spec.name
        assert spec.name.removesuffix("_total").endswith(f"_{spec.unit}" if spec.unit else ""), spec.name
        assert spec.unit not in {"milliseconds", "ms", "percent", "mebibytes", "minutes"}, "base units only"
        assert spec.labels[0] == ("search" if spec.name.startswith("rtp_search_") else "run"), spec.name
        assert bool(spec.buckets) == (spec.kind == "histogram"), spec.name
        assert list(spec.buckets) == sorted(set(spec.buckets)), spec.name
        assert all(bound > 0 for bound in spec.buckets), spec.name


def test_what_the_inventory_does_not_declare_is_rejected() -> None:
    for name, labels, said in (
        ("rtp_train_lost", {}, "unknown metric 'rtp_train_lost'"),
        ("rtp_train_evaluation_loss", {"rank": "0"}, "needs the labels run, split; got run, rank"),
        ("rtp_train_samples_total", {}, "rtp_train_samples_total is a counter, not a gauge"),
    ):
        with pytest.raises(ValueError, match=said):
            NullRecorder().set(name, 1, run="a", **labels)


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


@pytest.mark.extended
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
