"""Which groups have no capacity, and what that does to their flavors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from infra.spec.node_labels import NO_CAPACITY_TAINT
from platform_charts.images.node_gate.__main__ import check_capacity
from platform_charts.images.node_gate.capacity import groups_in_backoff, patch_of
from platform_charts.images.node_gate.objects import Group

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)
HOLD = timedelta(minutes=50)
UUID = "12c3a8f0-1b2c-3d4e-5f60-0123456789ab"
PARTS = {"a10g": ("a10g-us-east-1a", "a10g-us-east-1b"), "a10g-spot": ("a10g-spot",)}
TAINT = NO_CAPACITY_TAINT.model_dump()
UNTIL = "ray-train-platform/no-capacity-until"


def status(states: dict[str, str], *, time: str = "2027-01-01 11:59:50.123456789 +0000 UTC") -> str:
    """The autoscaler's status (cluster-autoscaler, clusterstate/api/types.go)."""
    groups = [
        {"name": name, "health": {"status": "Healthy"}, "scaleUp": {"status": state}} for name, state in states.items()
    ]
    return yaml.safe_dump({"time": time, "autoscalerStatus": "Running", "nodeGroups": groups})


def flavor(*taints: dict[str, str], until: datetime | None = None) -> dict[str, Any]:
    """A ResourceFlavor of the group."""
    notes = {} if until is None else {UNTIL: until.isoformat()}
    return {
        "metadata": {"name": "a10g", "resourceVersion": "7", "annotations": notes},
        "spec": {"nodeTaints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, *taints]},
    }


def taints_after(found: dict[str, Any], *, is_failing: bool) -> list[str] | None:
    """Keys of the taints after the patch; None without one."""
    patch = patch_of(found, is_failing=is_failing, now=NOW, hold=HOLD, taint=TAINT)
    return None if patch is None else [one["key"] for one in patch["spec"]["nodeTaints"]]


def test_a_group_has_no_capacity_if_the_autoscaler_has_given_up_in_all_its_zones() -> None:
    both = {f"eks-a10g-us-east-1a-1a2b3c4-{UUID}": "Backoff", f"eks-a10g-us-east-1b-5d6e7f8-{UUID}": "Backoff"}
    one = {**both, f"eks-a10g-us-east-1b-5d6e7f8-{UUID}": "NoActivity"}
    assert groups_in_backoff(status(both), PARTS, now=NOW) == {"a10g"}
    assert groups_in_backoff(status(one), PARTS, now=NOW) == set()


def test_groups_whose_names_begin_alike_are_told_apart_and_a_status_that_is_old_or_without_groups_closes_none() -> None:
    spot = {f"eks-a10g-spot-1a2b3c4-{UUID}": "Backoff"}
    assert groups_in_backoff(status(spot), PARTS, now=NOW) == {"a10g-spot"}
    assert groups_in_backoff(status(spot, time="2027-01-01 11:40:00.1 +0000 UTC"), PARTS, now=NOW) == set()
    another_format = "Cluster-autoscaler status at 2027-01-01:\nCluster-wide:\n  Health: x: y"
    for text in ("", another_format, status({}), "time: 5\nnodeGroups: 7"):
        assert groups_in_backoff(text, PARTS, now=NOW) == set(), text


def test_a_failing_group_gets_the_taint_until_jobs_that_wait_for_it_have_been_requeued() -> None:
    patch = patch_of(flavor(), is_failing=True, now=NOW, hold=HOLD, taint=TAINT)
    assert patch is not None
    assert [one["key"] for one in patch["spec"]["nodeTaints"]] == ["nvidia.com/gpu", TAINT["key"]]
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {UNTIL: (NOW + HOLD).isoformat()}}


def test_the_taint_stays_until_its_time_and_one_that_an_update_removed_is_set_again() -> None:
    early, late = NOW + timedelta(minutes=1), NOW - timedelta(minutes=1)
    assert taints_after(flavor(TAINT, until=early), is_failing=False) is None
    assert taints_after(flavor(until=early), is_failing=False) == ["nvidia.com/gpu", TAINT["key"]]
    assert taints_after(flavor(TAINT, until=late), is_failing=False) == ["nvidia.com/gpu"]
    assert taints_after(flavor(), is_failing=False) is None, "an open flavor is left alone"


def test_a_group_that_keeps_failing_is_written_about_once_a_minute() -> None:
    fresh, older = (NOW + HOLD - timedelta(seconds=seconds) for seconds in (30, 90))
    assert taints_after(flavor(TAINT, until=fresh), is_failing=True) is None
    assert taints_after(flavor(TAINT, until=older), is_failing=True) == ["nvidia.com/gpu", TAINT["key"]]


class MemoryFlavors:
    """The flavors of a cluster, and the autoscaler's status."""

    def __init__(self, found: dict[str, dict[str, Any]], text: str) -> None:
        self.found, self.text = found, text

    def status(self) -> str:
        """The autoscaler's status."""
        return self.text

    def find(self, name: str) -> dict[str, Any] | None:
        """A flavor."""
        return self.found.get(name)

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        """Merge a patch into a flavor."""
        self.found[name] = {**self.found[name], **patch}


def test_a_poll_closes_the_flavors_of_failing_groups_and_opens_those_whose_time_is_over() -> None:
    groups = {name: Group(devices={}, parts=parts) for name, parts in PARTS.items()}
    failing = status({f"eks-a10g-spot-1a2b3c4-{UUID}": "Backoff"})
    flavors = MemoryFlavors({"a10g-spot": flavor(), "a10g": flavor(TAINT, until=NOW - HOLD)}, failing)
    for minutes, closed in ((0, ["a10g-spot"]), (49, ["a10g-spot"]), (51, [])):
        now = NOW + timedelta(minutes=minutes)
        lines = check_capacity(flavors, taint=TAINT, groups=groups, hold=HOLD, now=now)  # type: ignore[arg-type]
        assert lines == [f"group {name}: AWS has no capacity; jobs with a choice use other groups" for name in closed]
        keys = {name: [one["key"] for one in found["spec"]["nodeTaints"]] for name, found in flavors.found.items()}
        assert keys["a10g"] == ["nvidia.com/gpu"]
        assert (TAINT["key"] in keys["a10g-spot"]) is bool(closed)
        flavors.text = status({})
