"""What every component of the stack is made from."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.aws.iam import Scope
from infra.spec import names
from infra.spec.protection import Protection, protection_of
from infra.spec.release import AmiType, ReleaseManifest
from infra.spec.settings.stack import StackSettings


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What every part below is made from.

    Attributes:
        settings: the environment.
        release: the versions.
        account: the AWS account.
        top: options of a component that waits for nothing.
    """

    settings: StackSettings
    release: ReleaseManifest
    account: pulumi.Output[str]
    top: pulumi.ResourceOptions

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster, which most names begin with."""
        return names.cluster_name(self.settings)

    @property
    def kubernetes(self) -> str:
        """Kubernetes minor of the cluster: the environment's own, else the release's."""
        return self.settings.cluster.kubernetes or self.release.kubernetes.version

    @property
    def protection(self) -> Protection:
        """What keeps the environment's state from being deleted."""
        return protection_of(self.settings.environment.kind)

    @property
    def scope(self) -> Scope:
        """Where the stack's identities may act."""
        return Scope(cluster_name=self.cluster_name, account=self.account, region=self.settings.aws.region)

    def after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of a component that waits for others, and is deleted before them."""
        return pulumi.ResourceOptions.merge(self.top, pulumi.ResourceOptions(depends_on=list(resources)))

    def ami_release(self, ami_type: AmiType) -> str | None:
        """The pinned AMI release, if it is of the cluster's minor: an environment may stay at an older one."""
        pinned = self.release.node_image.releases[ami_type]
        return pinned if pinned and pinned.startswith(f"{self.kubernetes}.") else None
