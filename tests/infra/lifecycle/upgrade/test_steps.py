"""An update is divided into steps: with the resources of a recorded environment, as a preview would list them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from infra.lifecycle.upgrade.division import gpu_groups, plan_of
from infra.lifecycle.upgrade.steps import PROTECTED, STEPS, UpgradePlan, lines_of
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.settings.loading import PROJECT
from tests.infra.aws.graphs import ENVIRONMENTS, graph, in_order


def preview(
    environment: str, operations: Mapping[str, str] | None = None, *, default: str = "update"
) -> dict[str, Any]:
    """A preview of every resource of an environment, in the order of creation; `operations` by type, `default` for the others."""
    chosen = operations or {}
    stack = f"urn:pulumi:{environment}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{environment}"
    steps = []
    for one in in_order(graph(environment).resources):
        state = {
            "parent": one.parent or stack,
            "inputs": one.properties,
            "dependencies": one.dependencies,
            "propertyDependencies": one.property_dependencies,
        }
        op = chosen.get(one.type, default)
        states = {"create": {"newState": state}, "delete": {"oldState": state}}
        steps.append({"op": op, "urn": one.urn, **states.get(op, {"oldState": state, "newState": state})})
    return {"steps": steps}


def refusals(document: Mapping[str, Any], plan: UpgradePlan) -> list[str]:
    """Why the engine would refuse a step: a new resource that is left out is needed, or a removed one is deleted before the last step."""
    new = {one["urn"] for one in document["steps"] if one["op"] == "create"}
    removed = {one["urn"] for one in document["steps"] if one["op"] == "delete"}
    found = []
    for step in plan.steps:
        missing = new.intersection(step.excluded)
        for one in document["steps"]:
            state = one.get("newState") or {}
            is_included = one["urn"] not in step.excluded and not one["urn"].split("::")[2].startswith("pulumi:")
            if is_included and missing.intersection({*state.get("dependencies", ()), state.get("parent")}):
                found.append(f"{step.name}: {one['urn']} needs what is left out")
        if step.excluded:
            found += [f"{step.name}: deletes {urn}" for urn in removed.difference(step.excluded)]
    return found


def test_every_resource_has_a_step_and_the_order_is_that_of_the_guide() -> None:
    for environment in ENVIRONMENTS:
        groups = gpu_groups(preview(environment))
        plan = plan_of(preview(environment), canary=groups[0])
        names = [name for name in STEPS if name != "gpu-nodes" or len(groups) > 1]
        assert [step.name for step in plan.steps] == names, environment
        resources = graph(environment).resources
        expected = sum(not one.is_component and ":providers:" not in one.type for one in resources)
        assert sum(len(step.changes) for step in plan.steps) == expected, environment
        assert (plan.untouched, plan.forbidden) == (0, ()), environment
    assert gpu_groups(preview("prod")) == ("a100", "h100", "l4"), "those of GPU nodes and nothing that contains them"


def test_each_step_has_the_resources_of_its_kind() -> None:
    steps = {step.name: step for step in plan_of(preview("dev"), canary="t4").steps}
    types = {name: {change.type for change in step.changes} for name, step in steps.items()}
    assert "aws:eks/cluster:Cluster" in types["control-plane"]
    assert types["add-ons"] == {"aws:eks/addon:Addon"}
    assert "kubernetes:helm.sh/v3:Release" in types["operators"]
    assert "kubernetes:core/v1:Namespace" in types["operators"]
    assert "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue" in types["platform"]
    assert {"aws:rds/instance:Instance", "aws:ec2/vpc:Vpc"} <= types["foundation"]
    nodes = [change for change in steps["system-nodes"].changes if change.type == "aws:eks/nodeGroup:NodeGroup"]
    assert {change.name.partition("-us-")[0] for change in nodes} == {"system", "heads"}
    canary = [change.name for change in steps["canary"].changes if "NodeGroup" in change.type]
    assert {name.partition("-us-")[0] for name in canary} == {"t4"}
    assert not any(change.name.startswith("t4") for change in steps["gpu-nodes"].changes)


def test_a_step_leaves_out_what_later_steps_change_and_one_alone_what_all_others_change() -> None:
    plan = plan_of(preview("dev"), canary="t4")
    assert (plan.steps[-1].name, plan.steps[-1].excluded) == ("platform", ())
    changes = {step.name: {change.urn for change in step.changes} for step in plan.steps}
    for number, step in enumerate(plan.steps):
        assert set(step.excluded) == set[str]().union(*(changes[later.name] for later in plan.steps[number + 1 :]))
        (alone,) = plan.only(step.name).steps
        assert set(alone.excluded) == set[str]().union(*changes.values()) - changes[step.name]
    assert [step.name for step in plan.steps] == list(STEPS)
    assert plan_of(preview("dev", default="same"), canary="t4").only("gpu-nodes").steps == ()


def test_the_engine_accepts_every_step_of_a_new_stack() -> None:
    document = preview("dev", default="create")
    assert refusals(document, plan_of(document, canary="t4")) == []


@pytest.mark.parametrize("seed", range(8))
def test_the_engine_accepts_every_step_of_an_upgrade_that_adds_and_removes(seed: int) -> None:
    document, random = preview("dev"), Random(seed)
    for one in document["steps"]:
        # Only leaves can be removed: nothing in the program depends on what is gone.
        one["op"] = random.choice(["same", "update", "create"])
        if one["op"] == "create":
            del one["oldState"]
    needed = {urn for one in document["steps"] for urn in [*one["newState"]["dependencies"], one["newState"]["parent"]]}
    for one in document["steps"]:
        if one["urn"] not in needed and random.random() < 0.2:
            one.update(op="delete", oldState=one.pop("newState"))
    plan = plan_of(document, canary="t4")
    assert refusals(document, plan) == []
    assert {"canary", "platform"} <= {step.name for step in plan.steps}


def test_a_new_group_of_nodes_waits_with_its_component() -> None:
    """The engine refuses a resource whose new parent is left out."""
    document = preview("dev", {"rtp:aws:NodeGroup": "create"}, default="same")
    for one in document["steps"]:
        if "rtp:aws:NodeGroup" in one["urn"] and "::t4" in one["urn"]:
            one["op"] = "create"
    plan = plan_of(document, canary="t4")
    assert [step.name for step in plan.steps] == ["canary", "platform"]
    assert refusals(document, plan) == []


def test_what_stays_the_same_and_newly_needs_a_new_resource_waits_for_it() -> None:
    document = preview("dev", {"kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue": "create"}, default="same")
    queue = next(one["urn"] for one in document["steps"] if one["op"] == "create")
    addon = next(one for one in document["steps"] if "eks/addon:Addon" in one["urn"])
    document["steps"].remove(addon)
    document["steps"].append(addon | {"newState": addon["newState"] | {"dependencies": [queue]}})
    role = next(one for one in document["steps"] if "iam/role:Role" in one["urn"])
    role["op"] = "update"
    plan = plan_of(document, canary=None)
    assert addon["urn"] in plan.steps[0].excluded
    assert refusals(document, plan) == []


def test_a_replaced_resource_waits_for_what_uses_it_and_changes_in_a_later_step() -> None:
    """The old node role may not be deleted while nodes of a later step have it."""
    document = preview("dev", default="same")
    role = next(one for one in document["steps"] if one["urn"].endswith("iam/role:Role::node"))
    role["op"] = "replace"
    needs = [(one, (one.get("newState") or {}).get("propertyDependencies", {})) for one in document["steps"]]
    users = [one for one, found in needs if role["urn"] in sum(found.values(), ())]
    groups = [one for one in users if "nodeGroup:NodeGroup" in one["urn"]]
    assert len({one["urn"].rpartition("::")[2].partition("-us-")[0] for one in groups}) > 2
    for one in users:
        one["op"] = "replace" if one in groups else "update"
    plan = plan_of(document, canary="t4")
    assert [step.name for step in plan.steps] == ["platform"]
    assert {change.effect for change in plan.steps[0].changes} == {"replaced", "updated"}


def test_what_a_release_has_no_more_goes_last_and_an_update_of_one_part_ends_with_a_whole_one() -> None:
    plan = plan_of(preview("dev", {"kubernetes:helm.sh/v3:Release": "delete"}, default="same"), canary=None)
    (step,) = plan.steps
    assert step.name == "platform"
    assert {change.effect for change in step.changes} == {"deleted"}
    assert plan.untouched > 100
    plan = plan_of(preview("dev", {"aws:eks/addon:Addon": "update"}, default="same"), canary=None)
    assert [(step.name, step.excluded) for step in plan.steps] == [("add-ons", ()), ("platform", ())]
    assert plan_of(preview("dev", default="same"), canary="t4").steps == ()


def test_no_upgrade_may_lose_state() -> None:
    for type_ in PROTECTED - {"aws:fsx/lustreFileSystem:LustreFileSystem"}:
        for operation in ("replace", "create-replacement", "delete-replaced", "delete"):
            plan = plan_of(preview("prod", {type_: operation}, default="same"), canary=None)
            assert {change.type for change in plan.forbidden} == {type_}, (type_, operation)


def test_the_plan_names_everything_that_it_replaces_and_counts_the_rest() -> None:
    document = preview("dev", {"kubernetes:core/v1:ConfigMap": "replace"})
    plan = plan_of(document, canary="t4")
    replaced = [change.name for change in plan.steps[-1].changes if change.effect == "replaced"]
    said = list(lines_of(plan, {}))
    assert [line.rpartition(" ")[2] for line in said if "replaced: ConfigMap" in line] == replaced != []
    assert any(line.startswith("8. platform: ") and f"({len(replaced)} replaced, " in line for line in said)
    assert any(line.endswith(" more created or updated") for line in said)


def test_the_plan_says_how_long_nodes_are_away() -> None:
    minimal = {"maxUnavailablePercentage": 50, "updateStrategy": "MINIMAL"}
    urn = f"urn:pulumi:dev::{PROJECT}::rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"
    old: dict[str, Any] = {"id": "rtp-dev:t4-1a2b3c", "inputs": {"labels": {GROUP_LABEL: "t4"}}}
    for op, config, expected in (
        ("update", {"maxUnavailablePercentage": 25}, ", 2 at a time, about 40 minutes; new ones start before"),
        ("update", minimal, ", 4 at a time, about 20 minutes; each is away for about 10"),
        ("replace", {}, ", all at once, for about 10 minutes"),
        ("delete", {}, ", which leave for good"),
    ):
        new = {"inputs": {**old["inputs"], "updateConfig": config}}
        record = {"op": op, "urn": urn, "detailedDiff": {"releaseVersion": {}}, "oldState": old, "newState": new}
        plan = plan_of({"steps": [record]}, canary="t4")
        (some,) = [line for line in lines_of(plan, {"t4-1a2b3c": 8}) if "node group t4" in line]
        assert f"8 nodes{expected}" in some
        (none,) = [line for line in lines_of(plan, {}) if "node group t4" in line]
        assert none.endswith(": no node runs")
