"""The inventories of metrics: ours follows the rules of Prometheus, all agree with what exports them, and their labels are bounded."""

from __future__ import annotations

import csv
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra.spec.release import load_release
from observability.metrics.dcgm_counters import FILE, counters_file
from observability.metrics.exporters import open_recorder
from observability.metrics.external.gpu import GPU_METRICS
from observability.metrics.external.model import LABEL_BOUNDS, RAY_POD_MONITOR_LABELS
from observability.metrics.external.ray import RAY_METRICS
from observability.metrics.inventory import INVENTORY
from observability.metrics.recorder import NullRecorder
from observability.metrics.scraped import SCRAPED, series_by_name
from platform_charts.charts.dcgm_exporter import COUNTERS
from platform_charts.objects.monitoring import monitors
from tests.infra.aws.graphs import settings_of

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
