"""The context that every `make_…` factory of this package takes, and options that components share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.aws.iam import Scope
from infra.spec import names
from infra.spec.protection import Protection, protection_of
from infra.spec.release import AmiType, ReleaseManifest
from infra.spec.settings.stack import StackSettings


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Inputs that every component of a stack shares.

    Attributes:
        settings: the environment.
        release: the pinned versions.
        account: the AWS account.
        opts: options of a top-level component without dependencies.
    """

    settings: StackSettings
    release: ReleaseManifest
    account: pulumi.Output[str]
    opts: pulumi.ResourceOptions

    @property
    def name_prefix(self) -> str:
        """Prefix of the stack's fixed physical names."""
        return names.name_prefix(self.settings)

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster that the nodes join."""
        return names.cluster_name(self.settings)

    @property
    def kubernetes(self) -> str:
        """Kubernetes minor version: the environment's, by default the release's."""
        return self.settings.cluster.kubernetes or self.release.kubernetes.version

    @property
    def protection(self) -> Protection:
        """Deletion protection and backups for this kind of environment."""
        return protection_of(self.settings.environment.kind)

    @property
    def scope(self) -> Scope:
        """Cluster, account and region that the stack's IAM roles are limited to."""
        return Scope(cluster_name=self.cluster_name, account=self.account, region=self.settings.aws.region)

    def after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of a top-level component that depends on `resources`."""
        return pulumi.ResourceOptions.merge(self.opts, pulumi.ResourceOptions(depends_on=list(resources)))

    def ami_release(self, ami_type: AmiType) -> str | None:
        """The pinned AMI release; None if it is for another Kubernetes minor than the cluster's."""
        pinned = self.release.node_image.releases[ami_type]
        return pinned if pinned and pinned.startswith(f"{self.kubernetes}.") else None


def protected_opts(
    parent: pulumi.Resource, protection: Protection, *, depends_on: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    """Options of a child resource that holds state."""
    return pulumi.ResourceOptions(
        parent=parent,
        protect=protection.protect,
        retain_on_delete=protection.retain_on_delete,
        depends_on=list(depends_on),
    )
