"""Nodes of GPU groups, in the cases that fake nodes do not have, and volumes of the teams' runs."""

from __future__ import annotations

from dataclasses import replace

from tests.training.cluster.team_cluster import target
from training.cluster.conformance.judges import nodes
from training.cluster.conformance.judges.nodes import NodeFacts
from training.cluster.conformance.judges.storage import VolumeFacts, volumes
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


def test_nodes_with_a_defect_are_found() -> None:
    not_ready = replace(A10G, not_ready="Kubelet stopped posting node status.")
    for found, said in (
        ([replace(T4, gpus=1)], "ip-2 offers 1 of 4 GPUs"),
        ([replace(A10G, instance_type="g5.48xlarge", gpus=8)], "ip-1 is a g5.48xlarge, its group has g5.12xlarge"),
        ([replace(A10G, gpus=0, is_starting=True), T4], "ip-1 has reported no devices for 60 minutes"),
        ([not_ready], "ip-1 is not ready: Kubelet stopped posting node status."),
    ):
        finding = nodes.gpus(found, GROUPS)
        assert (finding.verdict, finding.found) == ("failed", said)
    assert nodes.driver([replace(A10G, driver="")], GROUPS, branch="580").verdict == "failed"


def test_what_fake_nodes_and_gpus_cannot_have_is_not_asked_of_them() -> None:
    assert nodes.gpus([A10G, T4], GROUPS).verdict == "passed"
    assert nodes.gpus([replace(T4, gpus=1, is_fake=True)], GROUPS).verdict == "passed"
    assert nodes.driver([replace(A10G, driver="", has_fake_devices=True)], GROUPS, branch="580").verdict == "skipped"


def test_groups_without_a_node_in_service_are_skipped_not_passed() -> None:
    starting = replace(A10G, gpus=0, efa=0, age_seconds=60)
    for check in (nodes.gpus, nodes.efa):
        assert check([], GROUPS).verdict == "skipped"
        for new in (replace(starting, is_starting=True), replace(starting, not_ready="its kubelet has not reported")):
            finding = check([new], GROUPS)
            assert finding.verdict == "skipped"
            assert finding.found == "no node of these groups: they are at zero; 1 is starting"


def test_one_group_with_fake_nodes_only_keeps_pods_from_running() -> None:
    fake = replace(A10G, is_fake=True)
    assert are_fake([fake, T4], {"a10g", "t4"})
    assert not are_fake([fake, A10G], {"a10g"})
    assert not are_fake([], {"a10g"}), "a group at zero gets real nodes"


def facts(team: str, access_point: int) -> VolumeFacts:
    """The volume of a team, of its own access point."""
    where = {"volume": f"runs-{team}", "source": f"fs-1::fsap-{access_point}"}
    return VolumeFacts(team=team, reserved_for=f"{team}/runs", claim=f"{team}/runs", **where)


def test_a_volume_that_another_team_could_have_is_found_and_volumes_of_their_own_pass() -> None:
    research, platform = facts("research", 1), facts("platform", 2)
    assert volumes([research, platform]).verdict == "passed"
    of_it = "volume runs-platform of platform/runs"
    for changed, said in (
        (replace(platform, volume=""), "platform/runs is bound to no volume"),
        (replace(platform, reserved_for="research/runs"), f"{of_it} is reserved for research/runs"),
        (replace(platform, reserved_for=""), "is reserved for nobody"),
        (replace(platform, source=research.source), f"{of_it} mounts fs-1::fsap-1, as another team's does"),
    ):
        finding = volumes([research, changed])
        assert (finding.verdict, said in finding.found) == ("failed", True), finding.found
