"""The plan of an update, from documents of `pulumi preview --json`.

The documents have the form of pulumi's pkg/display/json.go, with the inputs of the recorded graph and the paths that the bridged
AWS provider reports.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from infra.lifecycle.rollout.jobs import RunningJob
from infra.lifecycle.rollout.plan import explain, plan_of_update
from tests.infra.aws.graphs import graph

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How pulumi writes a value that is known after the update only (sdk/go/common/resource/plugin/rpc.go)."""

TYPE = "aws:eks/nodeGroup:NodeGroup"


@cache
def inputs_of(group: str) -> Mapping[str, Any]:
    """Inputs of a node group in dev, as the engine sends them."""
    (found,) = [one for one in graph("dev").resources if one.type == TYPE and one.name == group]
    return {**copy.deepcopy(found.properties), "launchTemplate": {"id": "lt-1", "version": "3"}}


def step(op: str, group: str = "a10g", *, paths: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  # inputs of any type
    """A step on a node group with changed inputs, and the kinds of change at the paths below them."""
    old, urn = inputs_of(group), f"urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup${TYPE}::{group}"
    kinds = {path: {"kind": kind, "inputDiff": True} for path, kind in (paths or {}).items()}
    state = {"urn": urn, "custom": True, "type": TYPE}
    return {
        "op": op,
        "urn": urn,
        "provider": "urn:pulumi:dev::ray-train-platform::pulumi:providers:aws::aws::id",
        **({} if op == "create" else {"oldState": {**state, "id": f"dev:{group}", "inputs": old}}),
        **({} if op == "delete" else {"newState": {**state, "inputs": {**old, **changes}}}),
        **({"diffReasons": sorted(changes)} if changes else {}),
        "detailedDiff": kinds or None,
    }


def plan(*steps: dict[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    found = plan_of_update({"steps": list(steps), "changeSummary": {"same": 200, "update": len(steps)}})
    return [(one.group, one.effect, one.reasons) for one in found.rolling]


def test_a_new_template_image_or_version_rolls_the_group() -> None:
    for path, value in (
        ("launchTemplate.version", {"id": "lt-1", "version": UNKNOWN}),
        ("releaseVersion", "1.35.4-20261201"),
        ("version", "1.36"),
    ):
        name = path.partition(".")[0]
        changes: dict[str, Any] = {name: value}
        assert plan(step("update", paths={path: "update"}, **changes)) == [("a10g", "rolls", (path,))]
        assert plan(step("update", **changes)) == [("a10g", "rolls", (name,))], "without details"


def test_other_changes_replace_no_node() -> None:
    for path, value in (
        ("updateConfig.maxUnavailablePercentage", {"maxUnavailablePercentage": 50}),
        ("labels.x", {"x": "y"}),
        ("scalingConfig.maxSize", {"minSize": 0, "maxSize": 99}),
    ):
        changes: dict[str, Any] = {path.partition(".")[0]: value}
        assert plan(step("update", paths={path: "update"}, **changes)) == [], path
    assert plan(template_step()) == [], "of another type"


def test_a_smaller_a_replaced_and_a_deleted_group_are_named_and_a_new_one_is_not() -> None:
    smaller = step("update", paths={"scalingConfig.maxSize": "update"}, scalingConfig={"minSize": 0, "maxSize": 1})
    assert plan(smaller) == [("a10g", "may shrink", ("scalingConfig.maxSize",))]
    changes: dict[str, Any] = {"instanceTypes": ["g6.12xlarge"], "paths": {"instanceTypes[0]": "update-replace"}}
    steps = [step(op, **changes) for op in ("create-replacement", "replace", "delete-replaced")]
    assert plan(*steps) == [("a10g", "is replaced", ("instanceTypes[0]",))]
    assert plan(step("create", "t4-us-east-1a"), step("delete", "a10g"), step("same", "system-us-east-1a")) == [
        ("a10g", "is deleted", ())
    ]


def test_a_group_of_several_resources_is_named_by_its_nodes_label() -> None:
    labels = {**inputs_of("a10g")["labels"]}
    zonal = step("update", paths={"version": "update"}, version="1.36")
    zonal["urn"] = zonal["urn"].replace("::a10g", "::a10g-us-east-1a")
    found = plan_of_update({"steps": [zonal]})
    assert labels["ray-train-platform/group"] == "a10g"
    assert found.groups == {"a10g"}
    assert str(found.rolling[0]) == "node group a10g, a10g-us-east-1a, rolls (version)"


def namespace_step(op: str, name: str) -> dict[str, Any]:
    """A step on a namespace of dev, as the recorded graph has it."""
    kind = "kubernetes:core/v1:Namespace"
    (found,) = [one for one in graph("dev").of_type(kind) if one.properties["metadata"]["name"] == name]
    return {"op": op, "urn": found.urn, "oldState": {"urn": found.urn, "type": kind, "inputs": found.properties}}


def test_teams_that_go_and_groups_that_no_queue_has_any_more_are_named() -> None:
    removed = plan_of_update({"steps": [namespace_step("delete", "platform"), namespace_step("delete", "mlflow")]})
    assert (set(removed.teams), set(removed.groups)) == ({"platform"}, set())
    assert plan_of_update({"steps": [namespace_step("update", "platform")]}).teams == frozenset()
    renamed = step("create", labels={"ray-train-platform/group": "a10g-new"})
    assert plan_of_update({"steps": [renamed, step("delete")]}).gone == ("a10g",)
    assert plan_of_update({"steps": [step("create"), step("delete")]}).gone == (), "of another zone"
    assert plan_of_update({"steps": [step("update")]}).gone == ()


def test_jobs_of_a_team_or_a_group_that_goes_are_not_said_to_resume() -> None:
    job = RunningJob(namespace="platform", name="one", is_placed=True, groups=frozenset({"a10g"}), gpus=1, since=None)
    resumes = "drain: hold the queues and evict these jobs: each saves, and resumes by itself after the update"
    for steps, unless in (
        ([step("delete")], ", unless it was submitted for a10g"),
        ([namespace_step("delete", "platform")], ", unless it is of team platform"),
        ([step("create"), step("delete")], ""),
    ):
        assert f"{resumes}{unless}" in explain(plan_of_update({"steps": steps}), [job])


def test_an_update_without_steps_rolls_nothing() -> None:
    documents: tuple[dict[str, Any], ...] = ({}, {"steps": None}, {"steps": []})
    for document in documents:
        assert plan_of_update(document).groups == frozenset()
        assert explain(plan_of_update(document), ()) == ()


def template_step(op: str = "update") -> dict[str, Any]:
    urn = "urn:pulumi:dev::ray-train-platform::rtp:aws:NodeGroup$aws:ec2/launchTemplate:LaunchTemplate::a10g"
    return {"op": op, "urn": urn, "detailedDiff": {"userData": {"kind": "update"}}}


def block_step(op: str) -> dict[str, Any]:
    """A step on the managed group of a Capacity Block."""
    made = step(op)
    for state in {"oldState", "newState"} & set(made):
        made[state]["inputs"] = {**made[state]["inputs"], "capacityType": "CAPACITY_BLOCK"}
    return made


KEPT = "node group a10g keeps its nodes: EKS updates the group of a Capacity Block only while it is empty"


def test_a_capacity_block_that_an_update_passes_over_is_named() -> None:
    system = step("update", "system-us-east-1a", paths={"version": "update"}, version="1.36")
    for op in ("same", "update"):
        assert explain(plan_of_update({"steps": [block_step(op), system]}), ())[1] == KEPT, op
        assert explain(plan_of_update({"steps": [block_step(op), template_step()]}), ()) == (KEPT,), op
    # Not without a change of nodes, and not if it goes.
    for steps in ([block_step("same"), template_step("same")], [block_step("delete"), template_step()]):
        assert KEPT not in explain(plan_of_update({"steps": steps}), ())
