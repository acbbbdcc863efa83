"""The steps of an upgrade: their order, what each of them changes, and how it is taken back.

The order: what new nodes and pods need comes before them. Operators come before the control plane, because a newer operator runs on an
older minor and not the other way round; the control plane comes before its add-ons and nodes, which may be older than it and not newer;
one GPU group comes before the others, so that a node image which breaks jobs breaks them there (EKS best practices guide, "Best practices
for cluster upgrades"; KubeRay, "Upgrade guide").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from infra.lifecycle.rollout.plan import RollPlan, plan_of_update
from infra.lifecycle.upgrade.absence import NodeCount, absences

StepName = Literal[
    "foundation", "operators", "control-plane", "add-ons", "system-nodes", "canary", "gpu-nodes", "platform"
]

Effect = Literal["created", "updated", "replaced", "deleted"]

_TITLES: Mapping[StepName, str] = {
    "foundation": "network, keys, stores, identities",
    "operators": "CRDs, then operators and charts",
    "control-plane": "the EKS control plane",
    "add-ons": "EKS add-ons",
    "system-nodes": "system and head nodes",
    "canary": "one GPU group",
    "gpu-nodes": "the other GPU groups",
    "platform": "everything else: queues, MLflow, policies, monitors",
}

TAKEN_BACK: Mapping[StepName, str] = {
    "operators": "; CRDs stay as they are, because older ones would drop fields",
    "add-ons": "",
    "system-nodes": "",
    "canary": "",
    "gpu-nodes": "",
    "platform": "",
}
"""The steps that have a way back, each with what does not go back."""

STEPS: tuple[StepName, ...] = tuple(_TITLES)

PROTECTED = frozenset(
    {
        "aws:ec2/subnet:Subnet",
        "aws:ec2/vpc:Vpc",
        "aws:ecr/repository:Repository",
        "aws:efs/fileSystem:FileSystem",
        "aws:eks/cluster:Cluster",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:kms/key:Key",
        "aws:rds/instance:Instance",
        "aws:s3/bucket:Bucket",
    }
)
"""Types that no upgrade may replace or delete: they hold state, or everything else hangs on them."""


@dataclass(frozen=True, kw_only=True)
class ResourceChange:
    """What the update does to one resource.

    Attributes:
        urn: its URN.
        effect: what happens to it.
        step: the step that does it.
    """

    urn: str
    effect: Effect
    step: StepName

    @property
    def type(self) -> str:
        """Its type, e.g. aws:eks/cluster:Cluster."""
        return chain_of(self.urn)[-1]

    @property
    def name(self) -> str:
        """Its logical name."""
        return self.urn.rpartition("::")[2]

    def __str__(self) -> str:
        return f"{self.effect}: {self.type.rpartition(':')[2]} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of an upgrade that has something to do.

    Attributes:
        name: its name.
        changes: the resources that it changes.
        preview: its part of the preview's document.
        waiting: URNs of the resources that have to stay as they are until this step, also of some that it does not change.
        excluded: URNs of the resources that it leaves as they are.
    """

    name: StepName
    changes: tuple[ResourceChange, ...]
    preview: Mapping[str, Any]
    waiting: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def roll(self) -> RollPlan:
        """Which node groups it replaces the nodes of."""
        return plan_of_update(self.preview)

    @property
    def title(self) -> str:
        """What it is about."""
        return _TITLES[self.name]


@dataclass(frozen=True, kw_only=True)
class UpgradePlan:
    """What an upgrade does, step by step.

    Attributes:
        steps: the steps that have something to do, in order.
        untouched: number of resources that stay as they are.
    """

    steps: tuple[Step, ...]
    untouched: int

    @property
    def forbidden(self) -> tuple[ResourceChange, ...]:
        """Changes that would lose state."""
        return tuple(
            change
            for step in self.steps
            for change in step.changes
            if change.type in PROTECTED and change.effect in {"replaced", "deleted"}
        )

    def only(self, name: str) -> UpgradePlan:
        """This step alone, which leaves what all others change as it is; no step if it has nothing to do."""
        others = tuple(chain.from_iterable(step.waiting for step in self.steps if step.name != name))
        steps = tuple(replace(step, excluded=others) for step in self.steps if step.name == name)
        return UpgradePlan(steps=steps, untouched=self.untouched)


def way_back(step: StepName) -> str:
    """How a step is taken back; `none` if it is not."""
    if step not in TAKEN_BACK:
        return "none"
    command = f"`make upgrade` with ROLLBACK=1 ARGS='--only {step}'"
    return f"check out the release before, and {command}{TAKEN_BACK[step]}"


def chain_of(urn: str) -> Sequence[str]:
    """Types of a resource and its parents, outermost first."""
    return urn.split("::")[2].split("$")


def lines_of(plan: UpgradePlan, nodes: NodeCount) -> Iterator[str]:
    """The plan as lines of text.

    Args:
        plan: the plan.
        nodes: how many nodes each managed node group has.
    """
    for number, step in enumerate(plan.steps, start=1):
        yield f"{number}. {step.name}: {step.title} ({_counted(step.changes)})"
        yield from (f"     {change}" for change in _summary(step.changes))
        yield from (f"     {line}" for line in absences(step.roll, step.preview, nodes))
        yield f"     way back: {way_back(step.name)}"
    yield f"{plan.untouched} resources stay as they are"


_BY_SEVERITY: Sequence[Effect] = ("deleted", "replaced", "created", "updated")
_SHOWN = 12
"""Number of created and updated resources that a step names; it names all that it deletes or replaces."""


def _counted(changes: Sequence[ResourceChange]) -> str:
    """How many resources are replaced, and so on."""
    effects = [change.effect for change in changes]
    counts = [f"{effects.count(effect)} {effect}" for effect in _BY_SEVERITY if effect in effects]
    return ", ".join(counts) or "whatever is left"


def _summary(changes: Sequence[ResourceChange]) -> Iterator[str]:
    severe, others = (
        [one for one in changes if (one.effect in {"deleted", "replaced"}) is is_severe] for is_severe in (True, False)
    )
    yield from map(str, sorted(severe, key=lambda one: _BY_SEVERITY.index(one.effect)))
    yield from map(str, others[:_SHOWN])
    if len(others) > _SHOWN:
        yield f"{len(others) - _SHOWN} more created or updated"
