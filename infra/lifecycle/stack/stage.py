"""How much of the stack an update can register: all of it, or the AWS resources only.

Objects on the cluster need two things that an empty account lacks: our own images, which can only be pushed to repositories
that exist, and a connection to the API server, which a private endpoint accepts from inside the VPC only. Until both are
there, an update registers the AWS resources and says what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle.account.aws import AWS_ERRORS, Client, Session
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.image.availability import MissingImage, missing_images
from infra.spec.errors import RefusedError
from infra.spec.names import STACK_TAG, cluster_name, stack_tag
from infra.spec.node_labels import SYSTEM_GROUP
from infra.spec.registry_names import Registry
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

PLATFORM_IMAGES = frozenset({"mlflow"})
"""Our images that pods of the platform run; the trainer's is pulled by jobs only."""


class Stage(Enum):
    """What an update registers."""

    AWS = "AWS resources"
    ALL = "all resources"


@dataclass(frozen=True, kw_only=True)
class AccountState:
    """What an account has of an environment.

    Attributes:
        endpoint: URL of the cluster's API server; None while there is no cluster, it is being created, or it exists and has no
            nodes of the stack yet.
        missing: our images that its registry lacks.
        cluster_owner: value of the tag `stack` of the cluster that the settings name, empty without one; None if there is no such
            cluster.
    """

    endpoint: str | None
    missing: tuple[MissingImage, ...]
    cluster_owner: str | None = None

    @property
    def has_repositories(self) -> bool:
        """Whether the repositories of our images exist."""
        return all(one.reason != "repository missing" for one in self.missing)

    @property
    def missing_for_platform(self) -> tuple[MissingImage, ...]:
        """The missing images without which the platform's pods cannot start."""
        return tuple(one for one in self.missing if one.name in PLATFORM_IMAGES)


def read_account(settings: StackSettings, release: ReleaseManifest, session: Session) -> AccountState:
    """Read the state of an environment's account.

    Args:
        settings: the environment.
        release: the release manifest.
        session: boto3 session in the environment's region.

    Raises:
        RefusedError: AWS does not answer, or refuses these credentials.
    """
    registry = Registry.of(settings, account=caller_of(session).account)
    try:
        endpoint, owner = _cluster(session, settings)
        return AccountState(
            endpoint=endpoint,
            missing=missing_images(session.client("ecr"), registry, release),
            cluster_owner=owner,
        )
    except AWS_ERRORS as error:
        raise aws_refusal(
            f"cannot read cluster and images of {settings.environment.name} in AWS",
            error,
            remedy="sign in, e.g. `aws sso login`, with eks:DescribeCluster and ecr:DescribeImages",
        ) from error


def _cluster(session: Session, settings: StackSettings) -> tuple[str | None, str | None]:
    """Endpoint and owner of the cluster, see `AccountState`."""
    client, name = session.client("eks"), cluster_name(settings)
    try:
        cluster = client.describe_cluster(name=name)["cluster"]
    except client.exceptions.ResourceNotFoundException:
        return None, None
    is_ready = not settings.cluster.is_shared or _has_nodes(client, settings)
    return cluster.get("endpoint") if is_ready else None, str(cluster.get("tags", {}).get(STACK_TAG, ""))


def _has_nodes(client: Client, settings: StackSettings) -> bool:
    """Whether the existing cluster has a node group of the stack's system nodes, which an update of the AWS resources makes."""
    name, tag = cluster_name(settings), stack_tag(settings)
    pages = client.get_paginator("list_nodegroups").paginate(clusterName=name)
    groups = (group for page in pages for group in page["nodegroups"] if group.startswith(f"{SYSTEM_GROUP}-"))
    found = (client.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"] for group in groups)
    return any(one.get("tags", {}).get(STACK_TAG) == tag for one in found)


def is_private(settings: StackSettings) -> bool:
    """Whether the API server needs a tunnel, for want of a public endpoint; an existing one is reached as its owner does."""
    return not settings.cluster.public_cidrs and not settings.cluster.is_shared


def stage_of(settings: StackSettings, state: AccountState) -> Stage:
    """What an update can register.

    An image that a newer release adds has no repository yet, which does not stop the update that creates it.

    Raises:
        RefusedError: cluster and repositories exist, but images that the platform needs are missing.
    """
    missing = state.missing_for_platform
    if state.endpoint is None:
        return Stage.AWS if missing or is_private(settings) else Stage.ALL
    if missing and state.has_repositories:
        lines = "".join(f"\n  {one.name}: {one.reason}" for one in missing)
        raise RefusedError(
            f"the platform's pods on {cluster_name(settings)} cannot start without these images:{lines}",
            remedy=remedy_for_images(settings),
        )
    return Stage.ALL


def remedy_for_images(settings: StackSettings) -> str:
    """How to get missing images into an environment's registry."""
    name = settings.environment.name
    return f"`make image PUSH=1 ENV={name}` builds and pushes them; `make promote FROM=… TO={name}` copies tested ones"


def next_steps(settings: StackSettings, state: AccountState) -> tuple[str, ...]:
    """What to do after an update that registered the AWS resources only."""
    name = settings.environment.name
    images = (f"push the images: {remedy_for_images(settings)}",) if state.missing else ()
    tunnel = (f"connect to the private endpoint: `make tunnel ENV={name}`, or from a network of cluster.client_cidrs",)
    return (*images, *(tunnel if is_private(settings) else ()), f"install the platform: `pulumi up -s {name}`")
