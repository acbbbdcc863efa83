"""Which node groups an update replaces the nodes of, read from `pulumi preview --json`.

The document has a list `steps`, each with `op`, `urn`, `oldState` and `newState` (with the resource's `inputs`), `diffReasons`
(changed inputs) and `detailedDiff` (changed paths); see pulumi, pkg/display/json.go. A replacement is up to three steps of one URN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from infra.lifecycle.rollout.jobs import RunningJob
from infra.lifecycle.rollout.queues import HoldMode
from infra.spec.manifest import TEAM_LABEL
from infra.spec.node_labels import GROUP_LABEL

Effect = Literal["rolls", "is replaced", "is deleted", "may shrink"]
"""What happens to a group: its nodes are replaced one after the other, or all at once, or leave, or some of them leave."""

Choice = Literal["wait", "drain", "go"]
"""What to do about jobs: wait until they end, have them save and resume afterwards, or update beside them."""

CHOICES: tuple[Choice, ...] = get_args(Choice)

_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_NAMESPACE = "kubernetes:core/v1:Namespace"

_ROLLING = frozenset({"launchTemplate", "releaseVersion", "version"})
"""Inputs whose change replaces the nodes of a group (EKS API, UpdateNodegroupVersion); UpdateNodegroupConfig makes the others."""

_STAYS = frozenset({"same", "update"})
_DELETIONS = frozenset({"delete"})
_REPLACEMENTS = frozenset({"replace", "create-replacement", "delete-replaced"})
_SEVERITY: Sequence[Effect] = ("may shrink", "rolls", "is replaced", "is deleted")

_MODES: Mapping[Choice, HoldMode | None] = {"wait": "Hold", "drain": "HoldAndDrain", "go": None}


@dataclass(frozen=True, kw_only=True)
class RollingGroup:
    """A node group whose nodes an update ends.

    Attributes:
        group: name of the group in the settings, which its nodes have as a label.
        resource: name of the resource; a group may have several.
        effect: what happens to it.
        reasons: the inputs that change.
    """

    group: str
    resource: str
    effect: Effect
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        because = f" ({', '.join(self.reasons)})" if self.reasons else ""
        name = self.group if self.resource == self.group else f"{self.group}, {self.resource},"
        return f"node group {name} {self.effect}{because}"


@dataclass(frozen=True, kw_only=True)
class RollPlan:
    """What an update does to the nodes.

    Attributes:
        rolling: the node groups that it takes nodes from, by name.
        kept: names of groups of Capacity Blocks that it passes over (`infra/aws/node_groups.py`), while nodes change.
        gone: names of the groups that have no nodes any more, also under another name.
        teams: names of the teams that it removes.
    """

    rolling: tuple[RollingGroup, ...]
    kept: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    teams: frozenset[str] = frozenset()

    @property
    def groups(self) -> frozenset[str]:
        """Names of the groups, as their nodes are labelled."""
        return frozenset(one.group for one in self.rolling)


def plan_of_update(preview: Mapping[str, Any]) -> RollPlan:
    """What an update does to the nodes.

    Args:
        preview: the document of `pulumi preview --json`.
    """
    worst: dict[str, RollingGroup] = {}
    blocks, templates, staying, teams = set[str](), set[str](), set[str](), set[str]()
    for step in preview.get("steps") or ():
        if _type_of(step) == _NAMESPACE and step["op"] in _DELETIONS and _is_of_team(step):
            teams.add(_inputs(step, "oldState")["metadata"]["name"])
        if _type_of(step) == _TEMPLATE and step["op"] != "same":
            templates.add(_name_of(step))
        if _type_of(step) != _NODE_GROUP:
            continue
        if step["op"] in _STAYS and _inputs(step, "newState").get("capacityType") == "CAPACITY_BLOCK":
            blocks.add(_group_of(step))
        if step["op"] not in _DELETIONS:
            staying.add(_group_of(step, new=True))
        found = _rolling(step)
        if found is not None and _is_worse(found, worst.get(step["urn"])):
            worst[step["urn"]] = found
    is_rolling = any(one.effect == "rolls" for one in worst.values())
    return RollPlan(
        rolling=tuple(sorted(worst.values(), key=lambda one: (one.group, one.resource))),
        kept=tuple(sorted(blocks if is_rolling else blocks & templates)),
        gone=tuple(sorted({one.group for one in worst.values() if one.effect == "is deleted"} - staying)),
        teams=frozenset(teams),
    )


def explain(plan: RollPlan, jobs: Sequence[RunningJob], queued: Sequence[str] = ()) -> tuple[str, ...]:
    """Lines that say which groups roll and which teams go, which jobs are in them, and what each choice does to them.

    Args:
        plan: the update.
        jobs: the jobs on its groups and of its teams, see `running_jobs`.
        queued: the jobs of its teams that wait in a queue, see `queued_jobs`.
    """
    lines = list(map(str, plan.rolling))
    lines += [
        f"node group {name} keeps its nodes: EKS updates the group of a Capacity Block only while it is empty"
        for name in plan.kept
    ]
    if plan.gone:
        lines.append(
            f"no queue has {_listed(plan.gone)} after the update: a job that was submitted for it waits for ever. `make stop` it, "
            "then `make resume` it with GROUP=… of another one"
        )
    lines += [
        f"team {name} is deleted with its jobs, those in the queue too, its sessions, schedules and claims; its files stay on the file "
        "system, and no job can read them until there is a team of this name again"
        for name in sorted(plan.teams)
    ]
    if queued:
        lines.append(f"jobs in the queue that are deleted: {', '.join(queued)}")
    if not plan.rolling and not plan.teams:
        return tuple(lines)
    if not jobs:
        return (*lines, "no job runs on them" if plan.rolling else "no job of theirs runs")
    return (
        *lines,
        f"{len(jobs)} job{'s' * (len(jobs) != 1)} on them:",
        *(f"  {one}" for one in jobs),
        "wait:  hold the queues, and update when these jobs have ended",
        f"drain: hold the queues and evict these jobs: each saves, and resumes by itself after the update{_unless(plan)}",
        f"go:    update now: {'; '.join(_refused(plan))}",
    )


def _unless(plan: RollPlan) -> str:
    """Which jobs do not resume."""
    gone = [f"it was submitted for {_listed(plan.gone)}"] if plan.gone else []
    gone += [f"it is of team {_listed(sorted(plan.teams))}"] if plan.teams else []
    return f", unless {' or '.join(gone)}" if gone else ""


def _refused(plan: RollPlan) -> Iterator[str]:
    if plan.teams:
        yield "the jobs of a deleted team end with it"
    if any(one.effect in {"is deleted", "is replaced"} for one in plan.rolling):
        yield "the nodes of a deleted or replaced group end with the jobs on them"
    elif plan.rolling:
        yield "EKS waits 15 minutes for a node's jobs, and fails the update if they still run"


def _listed(names: Sequence[str]) -> str:
    return " or ".join(names)


def mode_of(choice: Choice) -> HoldMode | None:
    """How to hold the queues for a choice; None: not at all."""
    return _MODES[choice]


def _rolling(step: Mapping[str, Any]) -> RollingGroup | None:
    changes = tuple(sorted(_changes(step)))
    effect = _effect(step, changes)
    if effect is None:
        return None
    return RollingGroup(
        group=_group_of(step),
        resource=_name_of(step),
        effect=effect,
        reasons=() if effect == "is deleted" else changes,
    )


def _effect(step: Mapping[str, Any], changes: Sequence[str]) -> Effect | None:
    if step["op"] in _DELETIONS:
        return "is deleted"
    if step["op"] in _REPLACEMENTS:
        return "is replaced"
    if step["op"] != "update":
        return None
    if _ROLLING.intersection(_top(path) for path in changes):
        return "rolls"
    return "may shrink" if _shrinks(step) else None


def _changes(step: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the changed inputs; a provider without a detailed diff names the inputs only."""
    yield from step.get("detailedDiff") or step.get("replaceReasons") or step.get("diffReasons") or ()


def _shrinks(step: Mapping[str, Any]) -> bool:
    """Whether the largest size falls: nodes above it leave. The desired size is the autoscaler's."""
    before, after = (
        (_inputs(step, state).get("scalingConfig") or {}).get("maxSize") for state in ("oldState", "newState")
    )
    return isinstance(before, int | float) and isinstance(after, int | float) and after < before


def _is_worse(one: RollingGroup, other: RollingGroup | None) -> bool:
    return other is None or _SEVERITY.index(one.effect) > _SEVERITY.index(other.effect)


def _top(path: str) -> str:
    """First part of a property path: `launchTemplate` of `launchTemplate.version`, `taints` of `taints[0]`."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _is_of_team(step: Mapping[str, Any]) -> bool:
    return TEAM_LABEL in (_inputs(step, "oldState")["metadata"].get("labels") or {})


def _group_of(step: Mapping[str, Any], *, new: bool = False) -> str:
    """Name of a node group in the settings; one that moves to another name takes its nodes from the one that it had."""
    states = ("newState", "oldState") if new else ("oldState", "newState")
    inputs = _inputs(step, states[0]) or _inputs(step, states[1])
    return str((inputs.get("labels") or {}).get(GROUP_LABEL, _name_of(step)))


def _name_of(step: Mapping[str, Any]) -> str:
    """Logical name of a resource."""
    return str(step["urn"]).rpartition("::")[2]


def _inputs(step: Mapping[str, Any], state: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (step.get(state) or {}).get("inputs") or {}
    return found


def _type_of(step: Mapping[str, Any]) -> str:
    """Type of a resource: the last one of the chain in its URN, urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME."""
    return str(step["urn"]).split("::")[2].rpartition("$")[2]
