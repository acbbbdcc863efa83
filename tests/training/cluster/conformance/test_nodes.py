"""Nodes of GPU groups, in the cases that fake nodes do not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.training.cluster.team_cluster import target
from training.cluster.conformance.judges import nodes
from training.cluster.conformance.judges.nodes import NodeFacts
from training.cluster.conformance.probes.nodes import are_fake

A10G = NodeFacts(
    name="ip-1",
    group="a10g",
    instance_type="g5.12xlarge",
    gpus=4,
    efa=1,
    driver="580",
    is_starting=False,
    not_ready="",
    age_seconds=3600,
    is_fake=False,
    has_fake_devices=False,
)
T4 = replace(A10G, name="ip-2", group="t4", instance_type="g4dn.xlarge", efa=0)
"""Time slicing advertises its one GPU four times."""

GROUPS = target().outputs.gpu_groups


def test_shared_gpus_count_as_often_as_they_are_shared_and_whole_on_a_fake_node() -> None:
    assert nodes.gpus([A10G, T4], GROUPS).verdict == "passed"
    assert nodes.gpus([replace(T4, gpus=1)], GROUPS).found == "ip-2 offers 1 of 4 GPUs"
    assert nodes.gpus([replace(T4, gpus=1, is_fake=True)], GROUPS).verdict == "passed"


def test_a_node_of_another_type_than_its_groups_is_found() -> None:
    finding = nodes.gpus([replace(A10G, instance_type="g5.48xlarge", gpus=8)], GROUPS)
    assert (finding.verdict, finding.found) == ("failed", "ip-1 is a g5.48xlarge, its group has g5.12xlarge")


def test_a_node_that_does_not_say_its_driver_is_found_unless_its_gpus_do_not_exist() -> None:
    assert nodes.driver([replace(A10G, driver="")], GROUPS, branch="580").verdict == "failed"
    assert nodes.driver([replace(A10G, driver="", has_fake_devices=True)], GROUPS, branch="580").verdict == "skipped"


@pytest.mark.parametrize("check", [nodes.gpus, nodes.efa])
def test_groups_without_a_node_in_service_are_skipped_not_passed(check: object) -> None:
    assert callable(check)
    assert check([], GROUPS).verdict == "skipped"
    starting = replace(A10G, gpus=0, efa=0, age_seconds=60)
    for new in (replace(starting, is_starting=True), replace(starting, not_ready="its kubelet has not reported")):
        finding = check([new], GROUPS)
        assert finding.verdict == "skipped"
        assert finding.found == "no node of these groups: they are at zero; 1 is starting"


def test_a_node_whose_devices_are_never_reported_is_found() -> None:
    stuck = replace(A10G, gpus=0, is_starting=True)
    assert nodes.gpus([stuck, T4], GROUPS).found == "ip-1 has reported no devices for 60 minutes"


def test_a_node_that_is_not_ready_is_found_whatever_it_once_offered() -> None:
    finding = nodes.gpus([replace(A10G, not_ready="Kubelet stopped posting node status.")], GROUPS)
    assert finding.verdict == "failed"
    assert finding.found == "ip-1 is not ready: Kubelet stopped posting node status."


def test_one_group_with_fake_nodes_only_keeps_pods_from_running() -> None:
    fake = replace(A10G, is_fake=True)
    assert are_fake([fake, T4], {"a10g", "t4"})
    assert not are_fake([fake, A10G], {"a10g"})
    assert not are_fake([], {"a10g"}), "a group at zero gets real nodes"
