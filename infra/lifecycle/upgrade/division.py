"""Divides an update into the steps of an upgrade, by what `pulumi preview` says about each resource.

A step is an update of everything but what later steps change, which `pulumi up --exclude` leaves as it is. The engine ends an update in
which a resource needs a new one that is excluded, also a new parent, and so does a resource that stays the same; it deletes what the
program has no more unless that is excluded (pulumi, pkg/resource/deploy/step_generator.go: "skipped creates", `GenerateDeletes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.lifecycle.upgrade.steps import STEPS, Effect, ResourceChange, Step, StepName, UpgradePlan, chain_of
from infra.spec.node_labels import GROUP_LABEL, HEAD_GROUP, SYSTEM_GROUP

_EFFECTS: Mapping[str, Effect] = {
    "create": "created",
    "update": "updated",
    "delete": "deleted",
    "replace": "replaced",
    "create-replacement": "replaced",
    "delete-replaced": "replaced",
}

_BEFORE_CHARTS = ("namespaces", "policies", "storage")
"""Groups of objects that the charts depend on (`platform_charts.install.platform`)."""

_NODES = "rtp:aws:NodeGroup"
_STEP_OF: Mapping[str, StepName] = {
    "rtp:aws:Cluster": "control-plane",
    "rtp:aws:AddOns": "add-ons",
    "rtp:kubernetes:Charts": "operators",
}
"""The step of everything in a component."""

_SYSTEM_GROUPS = frozenset({SYSTEM_GROUP, HEAD_GROUP})


def plan_of(preview: Mapping[str, Any], *, canary: str | None) -> UpgradePlan:
    """Divide an update into steps.

    Args:
        preview: the document of `pulumi preview --json --show-sames`.
        canary: name of the GPU group that is updated first; None if there is none.
    """
    records: Sequence[Mapping[str, Any]] = preview.get("steps") or ()
    waiting = _joined_replacements(records, _waiting(records, canary=canary))
    effects, documents = dict[str, Effect](), dict[StepName, list[Mapping[str, Any]]]()
    for one in records:
        effect, urn = _EFFECTS.get(one["op"]), str(one["urn"])
        if effect is None or _is_component(urn):
            continue
        documents.setdefault(waiting[urn], []).append(one)
        # A replacement is up to three steps of one URN.
        if urn not in effects or effect == "replaced":
            effects[urn] = effect
    # The last step is an update of the whole stack, so that nothing is left out.
    names = [name for name in STEPS if name in documents or (documents and name == STEPS[-1])]
    steps = tuple(
        Step(
            name=name,
            changes=tuple(
                ResourceChange(urn=urn, effect=effect, step=name)
                for urn, effect in effects.items()
                if waiting[urn] == name
            ),
            preview={"steps": documents.get(name, [])},
            waiting=tuple(urn for urn, step in waiting.items() if step == name),
            excluded=tuple(urn for urn, step in waiting.items() if STEPS.index(step) > STEPS.index(name)),
        )
        for name in names
    )
    untouched = sum(one["op"] == "same" and not _is_component(str(one["urn"])) for one in records)
    return UpgradePlan(steps=steps, untouched=untouched)


def gpu_groups(preview: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the GPU groups that the preview knows, in its order."""
    urns = ((str(one["urn"]), one) for one in preview.get("steps") or ())
    names = [_group(one) for urn, one in urns if _NODES in chain_of(urn) and not _is_component(urn)]
    return tuple(dict.fromkeys(name for name in names if name and name not in _SYSTEM_GROUPS))


def _waiting(records: Sequence[Mapping[str, Any]], *, canary: str | None) -> dict[str, StepName]:
    """The step until which each resource has to stay as it is; those that no step changes are left out, unless they need a new one."""
    found, created = dict[str, StepName](), dict[str, StepName]()
    for one in records:
        urn = str(one["urn"])
        # The engine always creates and updates providers and the stack itself.
        if chain_of(urn)[-1].startswith("pulumi:") and one["op"] != "delete":
            continue
        is_changed = one["op"] in _EFFECTS and (one["op"] == "delete" or not _is_component(urn))
        own = _step_of(one, canary=canary) if is_changed else STEPS[0]
        step = max([own, *(created[needed] for needed in _needs(one) if needed in created)], key=STEPS.index)
        if one["op"] == "create":
            created[urn] = step
        if is_changed or step != STEPS[0]:
            found[urn] = max(step, found.get(urn, STEPS[0]), key=STEPS.index)
    return found


def _joined_replacements(records: Sequence[Mapping[str, Any]], waiting: Mapping[str, StepName]) -> dict[str, StepName]:
    """Steps in which no resource is replaced before another one that uses it changes: both wait for the last step.

    At the end of a replacement the engine deletes the old resource, which others would still use until their own step.
    """
    found = dict(waiting)
    replaced = {str(one["urn"]) for one in records if _EFFECTS.get(one["op"]) == "replaced"} & found.keys()
    uses = [
        (str(one["urn"]), source)
        for one in records
        if one["op"] in _EFFECTS and not _is_component(str(one["urn"]))
        for source in _inputs_from(one)
        if source in replaced
    ]
    is_stable = False
    while not is_stable:
        is_stable = True
        for user, source in uses:
            if found[user] != found[source]:
                found[user] = found[source] = STEPS[-1]
                is_stable = False
    return found


def _step_of(one: Mapping[str, Any], *, canary: str | None) -> StepName:
    """The step that makes a change of the preview; what a release has no more goes last, when nothing needs it."""
    chain = chain_of(str(one["urn"]))
    if one["op"] == "delete":
        return "platform"
    if _NODES in chain:
        return _step_of_nodes(one, canary=canary)
    if "rtp:kubernetes:Objects" in chain:
        return "operators" if _parent(one) in _BEFORE_CHARTS else "platform"
    return next((step for component, step in _STEP_OF.items() if component in chain), "foundation")


def _step_of_nodes(one: Mapping[str, Any], *, canary: str | None) -> StepName:
    group = _group(one)
    if group in _SYSTEM_GROUPS:
        return "system-nodes"
    return "canary" if group == canary else "gpu-nodes"


def _needs(one: Mapping[str, Any]) -> Iterator[str]:
    """URNs of the resources that have to exist before this one is registered."""
    state = one.get("newState") or {}
    yield from state.get("dependencies") or ()
    if state.get("parent"):
        yield str(state["parent"])


def _inputs_from(one: Mapping[str, Any]) -> Iterator[str]:
    """URNs of the resources whose outputs are inputs of this one."""
    for urns in ((one.get("newState") or {}).get("propertyDependencies") or {}).values():
        yield from urns or ()


def _group(one: Mapping[str, Any]) -> str:
    """Name of the group in the settings that a resource belongs to: its nodes' label, or the name of its component."""
    for state in ("oldState", "newState"):
        found = one.get(state) or {}
        label = ((found.get("inputs") or {}).get("labels") or {}).get(GROUP_LABEL)
        if label:
            return str(label)
    return _parent(one) or str(one["urn"]).rpartition("::")[2]


def _parent(one: Mapping[str, Any]) -> str:
    """Logical name of the parent; empty if the preview does not say."""
    parents = [(one.get(state) or {}).get("parent") for state in ("newState", "oldState")]
    return str(next((parent for parent in parents if parent), "")).rpartition("::")[2]


def _is_component(urn: str) -> bool:
    """Whether it only groups others, or is the engine's own."""
    return chain_of(urn)[-1].startswith(("rtp:", "pulumi:"))
