"""The pods KubeRay makes. Whether they are those of the real operator is checked where its binary is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kuberay.cluster import VERSION
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import target_of

PROD = target_of("prod")
EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""Manifests and their pods, a line each: names, commands, variables, probes, volumes and resources in every variant."""


def test_the_imitated_operator_is_the_releases() -> None:
    assert PROD.release.charts["kuberay-operator"].version == VERSION


def test_an_example_has_the_pods_that_kuberay_makes() -> None:
    for name, example in EXAMPLES.items():
        assert list(expand(example["manifest"])) == example["pods"], name
