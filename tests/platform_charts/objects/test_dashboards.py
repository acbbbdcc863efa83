"""Dashboards are delivered as they are committed, where Grafana's sidecar looks for them."""

from __future__ import annotations

import json

from infra.spec.release import load_release
from platform_charts.objects.dashboards import DASHBOARDS, dashboards

_MOST_BYTES = 2**20
"""Of a ConfigMap's data; the API server refuses more."""


def test_every_committed_dashboard_is_delivered_as_it_is() -> None:
    delivered = {
        name: json.loads(text) for manifest in dashboards(load_release()) for name, text in manifest["data"].items()
    }
    assert delivered == {file.name: json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS.iterdir()}
    assert len(delivered) >= 9


def test_the_sidecar_finds_them_in_its_namespace() -> None:
    """It selects by this label in the namespace that the chart's values name; see test_values.py for the folder."""
    found = {
        (manifest["metadata"]["namespace"], manifest["metadata"]["labels"]["grafana_dashboard"])
        for manifest in dashboards(load_release())
    }
    assert found == {("monitoring", "1")}


def test_each_fits_into_a_config_map() -> None:
    for manifest in dashboards(load_release()):
        assert sum(len(text.encode()) for text in manifest["data"].values()) < _MOST_BYTES / 4
