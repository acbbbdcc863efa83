"""The pods KubeRay makes. Whether they are those of the real operator is checked where its binary is at hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import VERSION
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import job, rendered, target_of

PROD = target_of("prod")
JOB = rendered(job(group="a100"), PROD)
EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""Manifests and their pods, a line each: names, commands, variables, probes, volumes and resources in every variant."""


def test_the_imitated_operator_is_the_releases() -> None:
    assert PROD.release.charts["kuberay-operator"].version == VERSION


def test_an_example_has_the_pods_that_kuberay_makes() -> None:
    for name, example in EXAMPLES.items():
        assert list(expand(example["manifest"])) == example["pods"], name


def test_a_job_is_a_head_its_workers_and_a_submitter_and_stays_as_it_is() -> None:
    before = copy.deepcopy(JOB)
    assert [pod["metadata"]["name"] for pod in expand(JOB)] == [
        "resnet101-00000-head-00000",
        "resnet101-00000-workers-worker-00000",
        "resnet101-00000-workers-worker-00001",
        "resnet101-00000",
    ]
    assert before == JOB


def test_an_unsupported_field_is_refused() -> None:
    cases: list[tuple[tuple[str, ...], object, str]] = [
        (("kind",), "Pod", "kind=Pod"),
        (("spec", "submissionMode"), "SidecarMode", "submissionMode=SidecarMode"),
        (("spec", "rayClusterSpec", "tlsOptions"), {}, "tlsOptions"),
    ]
    for (*inner, last), value, message in cases:
        manifest: Manifest = copy.deepcopy(JOB)
        node = manifest
        for part in inner:
            node = node[part]
        node[last] = value
        with pytest.raises(ValueError, match=message):
            expand(manifest)
