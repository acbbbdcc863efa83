"""Judges what the nodes of the GPU groups offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from infra.spec.outputs import GpuGroupOutput
from training.cluster.conformance.check import Finding, judged, skipped


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """A node of a GPU group.

    Attributes:
        name: of the node.
        group: of the node.
        instance_type: by its label.
        gpus: allocatable `nvidia.com/gpu`.
        efa: allocatable `vpc.amazonaws.com/efa`.
        driver: driver branch by the labels of GPU feature discovery; empty without one.
        is_starting: its device plugin has not reported yet, so it takes no jobs.
        not_ready: why it is not ready, by its condition; empty if it is.
        age_seconds: since it joined the cluster.
        is_fake: kwok reports it, and no container runs there.
        has_fake_devices: its GPUs do not exist, and so have no driver.
    """

    name: str
    group: str
    instance_type: str
    gpus: int
    efa: int
    driver: str
    is_starting: bool
    not_ready: str
    age_seconds: float
    is_fake: bool
    has_fake_devices: bool


Groups = Sequence[GpuGroupOutput]

_START_SECONDS = 20 * 60.0
"""Longest start of a node: the device plugin's image and the driver's initialization take minutes, and then they report."""


def gpus(nodes: Iterable[NodeFacts], groups: Groups) -> Finding:
    """Each node has its group's instance type and the GPUs of it, as often as the group shares them."""

    def expect(node: NodeFacts, group: GpuGroupOutput) -> str:
        # A fake node offers whole GPUs also where the group shares them.
        count = group.gpus_per_node * (1 if node.is_fake else group.devices_per_gpu)
        if node.instance_type != group.instance_type:
            return f"is a {node.instance_type}, its group has {group.instance_type}"
        return "" if node.gpus == count else f"offers {node.gpus} of {count} GPUs"

    return _of_all(nodes, groups, expect, expected=_list(groups, lambda one: f"{one.gpus_per_node} x GPU"))


def efa(nodes: Iterable[NodeFacts], groups: Groups) -> Finding:
    """Each node of a group with EFA has all interfaces."""
    having = [one for one in groups if one.efa_per_node]
    if not having:
        return skipped("no GPU group of the stack has EFA", expected="EFA interfaces")

    def expect(node: NodeFacts, group: GpuGroupOutput) -> str:
        return "" if node.efa == group.efa_per_node else f"offers {node.efa} of {group.efa_per_node} EFA interfaces"

    return _of_all(nodes, having, expect, expected=_list(having, lambda one: f"{one.efa_per_node} x EFA"))


def driver(nodes: Iterable[NodeFacts], groups: Groups, *, branch: str) -> Finding:
    """Each node has the release's driver branch; one whose GPUs do not exist may name none."""
    nodes = [one for one in nodes if one.driver or not one.has_fake_devices]
    expected = f"driver branch {branch}"

    def expect(node: NodeFacts, group: GpuGroupOutput) -> str:
        del group
        if not node.driver:
            return "has no label of GPU feature discovery with its driver"
        return "" if node.driver == branch else f"has driver {node.driver}"

    return _of_all(nodes, groups, expect, expected=expected, nobody="no GPU node that says which driver it has")


def _of_all(
    nodes: Iterable[NodeFacts],
    groups: Groups,
    expect: Callable[[NodeFacts, GpuGroupOutput], str],
    *,
    expected: str,
    nobody: str = "no node of these groups: they are at zero",
) -> Finding:
    """The finding over all nodes; `expect` returns what is wrong with one."""
    by_name = {one.name: one for one in groups}
    present = [one for one in nodes if one.group in by_name]
    old = [one for one in present if not _is_new(one)]
    if not old:
        starting = f"; {len(present)} {'are' if len(present) > 1 else 'is'} starting" if present else ""
        return skipped(f"{nobody}{starting}", expected=expected)
    wrong = [f"{one.name} {said}" for one in old if (said := _stuck(one) or expect(one, by_name[one.group]))]
    fakes = sum(one.has_fake_devices for one in old)
    right = f"{len(old)} nodes as expected" + (f", {fakes} of them with fake devices" if fakes else "")
    return judged(holds=not wrong, expected=expected, found="; ".join(wrong) or right)


def takes_jobs(node: NodeFacts) -> bool:
    """Whether a node is up and its devices are reported."""
    return not (node.is_starting or node.not_ready)


def _is_new(node: NodeFacts) -> bool:
    """Whether a node takes no jobs yet, and has not had the time for it."""
    return not takes_jobs(node) and node.age_seconds < _START_SECONDS


def _stuck(node: NodeFacts) -> str:
    """Why a node takes no jobs; empty if it does."""
    if node.not_ready:
        return f"is not ready: {node.not_ready}"
    return f"has reported no devices for {node.age_seconds / 60:.0f} minutes" if node.is_starting else ""


def _list(groups: Groups, describe: Callable[[GpuGroupOutput], str]) -> str:
    return ", ".join(f"{one.name} ({one.instance_type}): {describe(one)}" for one in groups)
