"""The inventory follows Prometheus' naming rules, and recorders reject what it does not declare."""

from __future__ import annotations

import re

import pytest

from observability.metrics.exporters import open_recorder
from observability.metrics.inventory import INVENTORY
from observability.metrics.recorder import NullRecorder


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
