"""EKS add-ons at the release's versions: those that nodes need to become ready, then those whose pods need a node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.aws.iam import Role
from infra.aws.identity import Identity
from infra.spec import names
from infra.spec.outputs import Workload

BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""DaemonSets that nodes need to become ready. EKS waits for the pods of any other add-on, which need a node to run."""

CONFIGURATION: Mapping[str, Mapping[str, Any]] = {
    "vpc-cni": {
        # Subnets are sized for prefixes of 16 addresses (infra.spec.settings.network). NetworkPolicies isolate the
        # teams, and the CNI enforces them.
        "env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"},
        "enableNetworkPolicy": "true",
    },
    # By default its DCGM server tolerates no taint (values.yaml of eks-node-monitoring-agent 1.7.0, `dcgmAgent.tolerations`),
    # so on our GPU nodes, which all have one, the agent would detect no GPU error.
    "eks-node-monitoring-agent": {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}},
}
"""Configuration values that differ from EKS's defaults, by add-on."""


def configuration_of(addon: str, tags: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The configuration values of an add-on; None for EKS's defaults.

    Args:
        addon: name of the add-on.
        tags: tags of what it makes in AWS, for the add-ons that make volumes, snapshots and interfaces; without them, nothing would
            say until when a volume is needed that has outlived its cluster.
    """
    values = dict(CONFIGURATION.get(addon, {}))
    if tags and addon == "aws-ebs-csi-driver":
        values["controller"] = {"extraVolumeTags": dict(tags)}
    if tags and addon == "vpc-cni":
        values["env"] = {**values["env"], "ADDITIONAL_ENI_TAGS": json.dumps(dict(tags), sort_keys=True)}
    return values or None


@dataclass(frozen=True, kw_only=True)
class AddOnArgs:
    """One add-on.

    Attributes:
        name: EKS's name of the add-on.
        version: add-on version; None while the release has not resolved it, which installs EKS's default.
        configuration: its configuration values; None for EKS's defaults.
        roles: role ARN by service account.
    """

    name: str
    version: str | None
    configuration: Mapping[str, Any] | None = None
    roles: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


class AddOns(pulumi.ComponentResource):
    """Add-ons that are installed together."""

    def __init__(
        self,
        name: str,
        addons: Sequence[AddOnArgs],
        *,
        cluster_name: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("rtp:aws:AddOns", name, None, opts)
        for addon in addons:
            values = addon.configuration
            aws.eks.Addon(
                addon.name,
                cluster_name=cluster_name,
                addon_name=addon.name,
                addon_version=addon.version,
                configuration_values=json.dumps(values, sort_keys=True) if values else None,
                pod_identity_associations=[
                    aws.eks.AddonPodIdentityAssociationArgs(service_account=account, role_arn=role)
                    for account, role in addon.roles.items()
                ]
                or None,
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="OVERWRITE",
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


ADDON_WORKLOADS: Mapping[str, Workload] = {"aws-ebs-csi-driver": "ebs-csi", "aws-efs-csi-driver": "efs-csi"}
"""Add-ons that call AWS, and the workload whose role they assume."""


def addon_args(
    context: BuildContext, cni_role: Role | None, identity: Identity
) -> tuple[Sequence[AddOnArgs], Sequence[AddOnArgs]]:
    """The environment's add-ons: those to install before the nodes, and those to install after."""
    roles: dict[str, dict[str, pulumi.Output[str]]] = {}
    if cni_role is not None:
        roles["vpc-cni"] = {names.CNI_ACCOUNT.name: cni_role.arn}
    for addon, workload in ADDON_WORKLOADS.items():
        accounts = names.PLATFORM_ACCOUNTS[workload] if workload in identity.roles else ()
        roles[addon] = {account.name: identity.roles[workload].arn for account in accounts}
    # Of a cluster that others use too, they would mark the volumes of all as the stack's.
    tags = {} if context.settings.cluster.is_shared else names.node_tags(context.settings)
    addons = [
        AddOnArgs(
            name=name,
            version=addon.version,
            configuration=configuration_of(name, tags),
            roles=roles.get(name, {}),
        )
        for name, addon in context.release.addons.items()
        if context.settings.installs_addon(name)
    ]
    before_nodes = [addon for addon in addons if addon.name in BEFORE_NODES]
    return before_nodes, [addon for addon in addons if addon.name not in BEFORE_NODES]
