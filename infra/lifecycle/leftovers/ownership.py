"""Whose a resource is: a pure function of its tags, its name and what it is a part of.

Tags decide where there are any: a resource with another stack's tag, or with another cluster's, is not this stack's whatever it is
called. Names count for kinds that have a fixed one, and only whole: `rtp-dev` owns nothing of `rtp-dev-2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from infra.lifecycle.leftovers.found import Found, Key
from infra.lifecycle.leftovers.kinds import compute, content, databases, identity, messages
from infra.spec.names import CLUSTER_PREFIX, STACK_TAG, database_of, prefix_of, stack_tag_of
from infra.spec.settings.loading import PROJECT

_NAME = "[a-z][a-z0-9-]{1,18}?[a-z0-9]"
_ENVIRONMENT = re.compile(rf"{re.escape(PROJECT)}/(?P<environment>{_NAME})")
"""Stack tag of an environment; the rule of `environment.name`."""


@dataclass(frozen=True)
class StackName:
    """What identifies a stack's resources, without its settings.

    Attributes:
        environment: name of the environment.
        account: account that it is in.
    """

    environment: str
    account: str

    @classmethod
    def of_tag(cls, tag: str, *, account: str) -> Self | None:
        """The stack with this tag; None if it is not one of this platform's."""
        match = _ENVIRONMENT.fullmatch(tag)
        return match and cls(match["environment"], account)

    @property
    def tag(self) -> str:
        """Value of the tag `stack`."""
        return stack_tag_of(self.environment)

    @property
    def cluster(self) -> str:
        """Name of the EKS cluster."""
        return prefix_of(self.environment)


class Evidence(NamedTuple):
    """Why a resource is the stack's.

    Attributes:
        says: the reason, e.g. `tag stack`.
        is_made_by_stack: whether the program made it, so that the state of a live stack has it. Otherwise something made it that the
            stack runs: a controller, or a service that writes logs.
    """

    says: str
    is_made_by_stack: bool


_NAMING_TAGS = (
    "eks:cluster-name",
    "aws:eks:cluster-name",
    "elbv2.k8s.aws/cluster",
    "cluster.k8s.amazonaws.com/name",
    "KubernetesCluster",
)
"""Tags whose value is a cluster: of EKS, its load balancer controller, the VPC CNI and the EBS CSI driver."""

_OWNING_PREFIXES = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
"""Beginnings of tags whose end is a cluster. With the value `shared` the cluster uses the resource and does not own it."""


_DRIVER_TAGS = frozenset({"ebs.csi.aws.com/cluster", "node.k8s.amazonaws.com/instance_id"})
"""Tags of the EBS CSI driver and the VPC CNI on what they make, which name no cluster."""


def clusters_of(tags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The clusters that own a resource by its tags, each with the tag."""
    for key, value in tags.items():
        if key in _NAMING_TAGS:
            yield value, key
        for prefix in _OWNING_PREFIXES:
            if key.startswith(prefix) and value == "owned":
                yield key.removeprefix(prefix), key


_BY_NAME = re.compile(
    rf"(?:^|/){re.escape(CLUSTER_PREFIX)}({_NAME})(?:$|/|-mlflow|-alerts|-(?:checkpoints|artifacts|logs|state)-\d+)"
    rf"|^{re.escape(PROJECT)}/({_NAME})/"
)
"""Names that contain the name of an environment; `owned` says whether the resource is that environment's."""


def environments_named_by(found: Found) -> frozenset[str]:
    """Environments that a resource without a tag `stack` may be of: by the tags of a cluster's controllers, or by its name."""
    if STACK_TAG in found.tags:
        return frozenset()
    clusters = {cluster for cluster, _ in clusters_of(found.tags) if cluster.startswith(CLUSTER_PREFIX)}
    names = {one for match in _BY_NAME.finditer(found.name or found.id) for one in match.groups() if one}
    return frozenset(names | {cluster.removeprefix(CLUSTER_PREFIX) for cluster in clusters})


def owned(found: Iterable[Found], stack: StackName, *, known: Iterable[Key] = ()) -> dict[Key, tuple[Found, Evidence]]:
    """Those of the resources that are a stack's, with the evidence.

    Args:
        found: resources of one account.
        stack: the stack.
        known: resources that are the stack's and not among these, whose parts are its too.
    """
    is_named, ours = _fixed_names(stack), dict[Key, tuple[Found, Evidence]]()
    undecided, of_clusters = list[Found](), list[Found]()
    for one in found:
        verdict = _by_tags(one, stack)
        if isinstance(verdict, Evidence):
            ours[one.key] = one, verdict
        elif verdict is None and is_named(one):
            ours[one.key] = one, Evidence("name", is_made_by_stack=False)
        elif verdict is None:
            undecided.append(one)
        elif STACK_TAG not in one.tags:
            of_clusters.append(one)
    wholes = {*known, *ours}
    while parts := [one for one in undecided if wholes & {*one.parents}]:
        for one in parts:
            whole = next(parent for parent in one.parents if parent in wholes)
            ours[one.key] = one, Evidence(f"part of {whole.kind} {whole.id}", is_made_by_stack=False)
        wholes |= {one.key for one in parts}
        undecided = [one for one in undecided if one.key not in wholes]
    for one in of_clusters:
        held = next((key for key in one.holds if key in wholes), None)
        if held is not None:
            ours[one.key] = one, Evidence(f"holds {held.kind} {held.id}", is_made_by_stack=False)
    return ours


def _by_tags(found: Found, stack: StackName) -> Evidence | Literal["theirs"] | None:
    """What the tags say: that it is the stack's, that it is somebody else's, or nothing."""
    tag = found.tags.get(STACK_TAG)
    clusters = dict(clusters_of(found.tags))
    if tag is not None:
        # Nodes get the stack's tags from their launch template, and the cluster's from EKS; drivers give both.
        is_made_in_cluster = bool(clusters) or not _DRIVER_TAGS.isdisjoint(found.tags)
        return Evidence(f"tag {STACK_TAG}", is_made_by_stack=not is_made_in_cluster) if tag == stack.tag else "theirs"
    if stack.cluster in clusters:
        return Evidence(f"tag {clusters[stack.cluster]}", is_made_by_stack=False)
    return "theirs" if clusters else None


def _fixed_names(stack: StackName) -> Callable[[Found], bool]:
    """Whether a resource has a name that only this stack's have."""
    cluster, database = re.escape(stack.cluster), re.escape(database_of(stack.cluster))
    in_folder = re.compile(rf"{cluster}/.+")
    patterns = {
        compute.CLUSTER: re.compile(cluster),
        databases.INSTANCE: re.compile(database),
        databases.SNAPSHOT: re.compile(database),
        databases.RETAINED_BACKUP: re.compile(database),
        content.BUCKET: re.compile(rf"{cluster}-(checkpoints|artifacts|logs|state)-{stack.account}"),
        content.REPOSITORY: in_folder,
        content.PULL_THROUGH_RULE: in_folder,
        content.CREATION_TEMPLATE: in_folder,
        content.LOG_GROUP: re.compile(
            rf"(/aws/(eks|vpc|containerinsights)|/rtp)/{cluster}/.+|/aws/rds/instance/{database}/.+"
        ),
        content.SECRET: re.compile(rf"{re.escape(PROJECT)}/{re.escape(stack.environment)}/.+"),
        messages.TOPIC: re.compile(rf"{cluster}-alerts"),
        messages.BUDGET: re.compile(cluster),
        identity.ALIAS: re.compile(rf"alias/{cluster}/.+"),
    }

    def is_named(found: Found) -> bool:
        pattern = patterns.get(found.kind)
        return pattern is not None and bool(pattern.fullmatch(found.name or found.id))

    return is_named
