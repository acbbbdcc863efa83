"""The inventory follows Prometheus' naming rules, and recorders reject what it does not declare."""

from __future__ import annotations

import re

import pytest

from observability.metrics.exporters import open_recorder
from observability.metrics.inventory import INVENTORY, MetricSpec
from observability.metrics.recorder import NullRecorder

every_metric = pytest.mark.parametrize("spec", INVENTORY, ids=lambda spec: spec.name)


def test_every_name_is_unique() -> None:
    names = [spec.name for spec in INVENTORY]
    assert len(set(names)) == len(names)


@every_metric
def test_a_name_ends_with_its_unit_and_kind(spec: MetricSpec) -> None:
    assert re.fullmatch(r"rtp_(train|search)_[a-z][a-z_]*[a-z]", spec.name)
    assert spec.name.endswith("_total") == (spec.kind == "counter")
    assert spec.name.removesuffix("_total").endswith(f"_{spec.unit}" if spec.unit else "")
    assert spec.unit not in {"milliseconds", "ms", "percent", "mebibytes", "minutes"}, "base units only"


@every_metric
def test_every_metric_names_its_run_or_search(spec: MetricSpec) -> None:
    assert spec.labels[0] == ("search" if spec.name.startswith("rtp_search_") else "run")


@every_metric
def test_only_histograms_have_buckets_and_they_are_positive_and_ascending(spec: MetricSpec) -> None:
    assert bool(spec.buckets) == (spec.kind == "histogram")
    assert list(spec.buckets) == sorted(set(spec.buckets))
    assert all(bound > 0 for bound in spec.buckets)


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown metric 'rtp_train_lost'"):
        NullRecorder().set("rtp_train_lost", 1, run="a")


def test_wrong_labels_are_rejected_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match="rtp_train_evaluation_loss needs the labels run, split; got run, rank"):
        NullRecorder().set("rtp_train_evaluation_loss", 1, run="a", rank="0")


def test_a_wrong_kind_is_rejected() -> None:
    with pytest.raises(ValueError, match="rtp_train_samples_total is a counter, not a gauge"):
        NullRecorder().set("rtp_train_samples_total", 1, run="a")


def test_the_exporter_none_serves_no_metrics() -> None:
    assert open_recorder("none", host="127.0.0.1", port=0).url == ""
