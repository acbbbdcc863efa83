"""Dashboards are delivered as they are committed, where Grafana's sidecar looks for them."""

from __future__ import annotations

import json

from infra.spec.release import load_release
from platform_charts.objects.dashboards import DASHBOARDS, dashboards

_MOST_BYTES = 2**20
"""Of a ConfigMap's data; the API server refuses more."""


def test_every_committed_dashboard_is_delivered_as_it_is_where_the_sidecar_looks() -> None:
    made = dashboards(load_release())
    delivered = {name: json.loads(text) for manifest in made for name, text in manifest["data"].items()}
    assert delivered == {file.name: json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS.iterdir()}
    assert len(delivered) >= 9
    for manifest in made:
        assert manifest["metadata"]["namespace"] == "monitoring"
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert sum(len(text.encode()) for text in manifest["data"].values()) < _MOST_BYTES / 4
