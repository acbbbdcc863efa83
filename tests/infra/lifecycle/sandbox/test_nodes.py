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


def test_a_p5_node_offers_what_ec2_lists_for_it_and_one_without_efa_no_huge_pages() -> None:
    node = next(one for one in nodes("prod") if one["metadata"]["name"] == "h100-0")
    offered = node["status"]["allocatable"]
    assert (offered["nvidia.com/gpu"], offered["vpc.amazonaws.com/efa"]) == ("8", "32")
    assert int(offered["hugepages-2Mi"]) == 5128 * 2 * 2**20
    p4d = next(one for one in nodes("prod") if one["metadata"]["name"] == "a100-0")
    assert int(p4d["status"]["allocatable"]["hugepages-2Mi"]) == 21122 * 2**20
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-east-1b"
    assert all(
        "hugepages-2Mi" not in one["status"]["allocatable"] for one in nodes("dev") if "t4" in one["metadata"]["name"]
    )
