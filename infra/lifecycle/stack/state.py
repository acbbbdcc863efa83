"""What a stack's state says before a command changes it: operations that were interrupted, and protected resources."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from infra.policy.tokens import HELM_RELEASE
from infra.spec.errors import RefusedError
from infra.spec.stack_outputs import NoStackError, ask_pulumi

_IDS: Mapping[str, str] = {
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
    "aws:ecr/repository:Repository": "{name}",
    "aws:eks/addon:Addon": "{clusterName}:{addonName}",
    "aws:eks/cluster:Cluster": "{name}",
    "aws:eks/nodeGroup:NodeGroup": "{clusterName}:{nodeGroupName}",
    "aws:iam/role:Role": "{name}",
    "aws:rds/instance:Instance": "{identifier}",
    "aws:rds/subnetGroup:SubnetGroup": "{name}",
    "aws:s3/bucket:Bucket": "{bucket}",
}
"""ID of a resource by its inputs, for the types whose ID is not invented by AWS (provider documentation, "Import")."""


class Interrupted(NamedTuple):
    """An operation that Pulumi began and did not see the end of.

    Attributes:
        operation: `creating`, `updating`, `deleting`, `reading` or `importing`.
        urn: URN of the resource.
        type: type token of the resource.
        parent: URN of its parent.
        provider: URN of its provider.
        inputs: its inputs, as plain data.
    """

    operation: str
    urn: str
    type: str
    parent: str
    provider: str
    inputs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.operation} {self.type} {self.name}"

    @property
    def name(self) -> str:
        """Logical name of the resource."""
        return self.urn.rpartition("::")[2]

    @property
    def id(self) -> str:
        """The ID that a created resource has; `ID` if AWS invents it."""
        return _IDS.get(self.type, "ID").format(**self.inputs)

    @property
    def is_lost(self) -> bool:
        """Whether there may be a resource that the state lacks and an update creates a second time.

        An update adopts objects of the cluster that exist.
        """
        return self.operation in {"creating", "importing"} and not self.type.startswith("kubernetes:")

    @property
    def is_unclear(self) -> bool:
        """Whether the state has the resource as it was before: an update compares with that, and may find nothing to change."""
        return self.operation in {"updating", "deleting"}


class StackState(NamedTuple):
    """The state of a stack.

    Attributes:
        interrupted: operations whose outcome is unknown.
        protected: protected resources that exist, by type and logical name.
        resources: number of resources that exist, including Pulumi's own for the stack and its providers.
    """

    interrupted: tuple[Interrupted, ...]
    protected: tuple[str, ...]
    resources: int


def export_state(environment: str) -> Mapping[str, Any]:
    """The state of an environment's stack, as `pulumi stack export` prints it. Works on a locked stack too.

    Raises:
        NoStackError: the stack does not exist.
        PlatformError: pulumi failed; carries its message.
    """
    exported: Mapping[str, Any] = json.loads(ask_pulumi(environment, "stack", "export"))
    return exported


def resources_in(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The resources of an exported state; none if nothing was ever deployed."""
    return (state.get("deployment") or {}).get("resources") or ()


def releases_in(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The Helm releases among the resources of an exported state."""
    for one in resources_in(state):
        if one["type"] == HELM_RELEASE and not one.get("delete"):
            yield one


def read_state(environment: str) -> StackState | None:
    """The state of an environment's stack; None if it does not exist. Works on a locked stack too.

    Raises:
        PlatformError: pulumi failed; carries its message.
    """
    try:
        return state_of(export_state(environment))
    except NoStackError:
        return None


def state_of(exported: Mapping[str, Any]) -> StackState:
    """What an exported state says."""
    resources, deployment = resources_in(exported), exported.get("deployment") or {}
    return StackState(
        interrupted=tuple(_interrupted(one) for one in deployment.get("pending_operations") or ()),
        protected=tuple(f"{one['type']} {one['urn'].rpartition('::')[2]}" for one in resources if one.get("protect")),
        resources=len(resources),
    )


def settle_interrupted(environment: str, interrupted: Iterable[Interrupted]) -> Mapping[str, Any]:
    """Read what became of the resources of interrupted operations, and remove these from the state, once nothing is lost with them.

    A refresh with `--clear-pending-creates` does so as well, and reads every resource of the stack. It does not read the chart and the
    values of a Helm release: that an update compares them is what forgetting the values is for.

    Args:
        environment: name of the environment and the stack.
        interrupted: the operations.

    Returns:
        the state without them.

    Raises:
        PlatformError: pulumi failed, e.g. because the stack is locked; carries its message.
    """
    unclear = {one.urn: one.type for one in interrupted if one.is_unclear}
    read = [part for urn, type_ in unclear.items() if type_ != HELM_RELEASE for part in ("--target", urn)]
    if read:
        ask_pulumi(environment, "refresh", *read, "--yes", "--skip-preview", "--skip-pending-creates")
    exported = export_state(environment)
    deployment = {key: value for key, value in exported["deployment"].items() if key != "pending_operations"}
    resources = [
        _without_values(one) if one["type"] == HELM_RELEASE and one["urn"] in unclear else one
        for one in resources_in(exported)
    ]
    left = {**exported, "deployment": {**deployment, "resources": resources}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # readable by nobody else
        json.dump(left, file)
        file.flush()
        ask_pulumi(environment, "stack", "import", "--file", file.name)
    return left


def _without_values(release: Mapping[str, Any]) -> Mapping[str, Any]:
    """A release whose next update installs the program's values again (pulumi-kubernetes, helm_release.go, `Diff`)."""
    outputs: Mapping[str, Any] = release.get("outputs") or {}
    none: Mapping[str, Any] = {"values": {}}
    inputs_of_provider = {**outputs.get("__inputs", {}), **none}
    return {
        **release,
        "inputs": {**release["inputs"], **none},
        "outputs": {**outputs, "__inputs": inputs_of_provider},
    }


def check_interrupted(state: StackState, *, environment: str, stack_tag: str) -> None:
    """Refuse a stack where an interrupted change may have lost a resource: Pulumi would create it again.

    Args:
        state: the stack's state.
        environment: name of the environment and the stack.
        stack_tag: value of the tag `stack` of the environment's AWS resources.

    Raises:
        RefusedError: lists every operation, with the command that resolves it.
    """
    lost = [one for one in state.interrupted if one.is_lost]
    if lost:
        lines = "".join(f"\n  {line}" for one in lost for line in _explain(one, environment))
        raise RefusedError(
            f"the last change of stack {environment} was interrupted, and it is unknown whether AWS finished:{lines}",
            remedy="if that pulumi was killed, then in this order:\n"
            f"    pulumi cancel -s {environment} --yes\n"
            "    the import of each resource that exists; to look it up: aws resourcegroupstaggingapi get-resources "
            f"--tag-filters Key=stack,Values={stack_tag}\n"
            f"    pulumi refresh -s {environment} --clear-pending-creates --yes",
        )


def check_unprotected(state: StackState, *, environment: str, cluster: str | None, database: str) -> None:
    """Refuse to destroy a stack with protected resources, before any job is deleted.

    Args:
        state: the stack's state.
        environment: name of the environment and the stack.
        cluster: name of its EKS cluster; None if the cluster is not the stack's.
        database: identifier of its RDS instance.

    Raises:
        RefusedError: names the resources, and the commands that remove the protection.
    """
    if state.protected:
        of_cluster = f"    aws eks update-cluster-config --name {cluster} --no-deletion-protection\n" if cluster else ""
        raise RefusedError(
            f"stack {environment} has {len(state.protected)} protected resources: {', '.join(state.protected[:3])}, …",
            remedy=f"remove the protection of Pulumi and AWS, then repeat the command:\n"
            f"    pulumi state unprotect --all -s {environment} --yes\n{of_cluster}"
            f"    aws rds modify-db-instance --db-instance-identifier {database} --no-deletion-protection"
            " --apply-immediately",
        )


def _interrupted(operation: Mapping[str, Any]) -> Interrupted:
    resource = operation["resource"]
    return Interrupted(
        operation=operation["type"],
        urn=resource["urn"],
        type=resource["type"],
        parent=resource.get("parent", ""),
        provider=resource.get("provider", "").rpartition("::")[0],
        inputs=resource.get("inputs", {}),
    )


def _explain(one: Interrupted, environment: str) -> Iterator[str]:
    yield str(one)
    # `pulumi refresh --import-pending-creates` loses the resource: as of 3.260 it drops the operation and imports nothing.
    yield (
        f"    if it exists: pulumi import {one.type} {one.name} {one.id} -s {environment} --parent 'parent={one.parent}' "
        f"--provider 'provider={one.provider}' --protect=false --generate-code=false --yes"
    )
