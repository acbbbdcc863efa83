"""Nodes that are not there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.spec.catalog import load_catalog
from infra.spec.node_labels import ACCELERATOR_LABEL, GPU_TAINT
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of


def nodes(environment: str) -> list[dict[str, Any]]:
    return list(fake_nodes(settings_of(environment), catalog=load_catalog()))


def test_every_group_has_its_largest_number_of_nodes_and_only_those_with_gpus_taint_and_accelerator() -> None:
    for environment in ENVIRONMENTS:
        made = nodes(environment)
        groups = Counter(node["metadata"]["labels"]["ray-train-platform/group"] for node in made)
        assert groups == {one.name: one.max_size for one in settings_of(environment).launch_requests()}, environment
        for node in made:
            has_gpus = "nvidia.com/gpu" in node["status"]["allocatable"]
            assert (GPU_TAINT.model_dump() in node["spec"]["taints"]) == has_gpus, environment
            assert (ACCELERATOR_LABEL in node["metadata"]["labels"]) == has_gpus, environment
