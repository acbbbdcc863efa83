"""Look up versions at AWS: Kubernetes minors, EKS add-ons and EKS-optimised AMIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.release.registries import Answer
from infra.spec.errors import NoAnswerError, NotFoundError
from infra.spec.release import AmiType


class _Ami(NamedTuple):
    """Where the AMIs of a type are: folder of the SSM public parameters, and prefix of the AMIs' names."""

    folder: str
    prefix: str


_AMIS: Mapping[AmiType, _Ami] = {
    "AL2023_x86_64_STANDARD": _Ami("amazon-linux-2023/x86_64/standard", "amazon-eks-node-al2023-x86_64-standard"),
    "AL2023_x86_64_NVIDIA": _Ami("amazon-linux-2023/x86_64/nvidia", "amazon-eks-node-al2023-x86_64-nvidia"),
}
"""EKS user guide, "Retrieve recommended Amazon Linux AMI IDs"; the names: awslabs/amazon-eks-ami, releases."""

_ABSENT = frozenset({"ParameterNotFound", "ResourceNotFoundException"})
"""Error codes that say that AWS does not have the value."""


class NodeImageSource(Protocol):
    """Looks up EKS-optimised AMIs."""

    def release(self, kubernetes: str, ami_type: AmiType) -> Answer:
        """The recommended release version for a Kubernetes minor."""
        ...

    def published(self, kubernetes: str, ami_type: AmiType, release: str) -> str:
        """Where AWS publishes the AMI of a release version."""
        ...


class AddonSource(Protocol):
    """Looks up EKS add-ons."""

    def version(self, name: str, kubernetes: str) -> Answer:
        """The default version for a Kubernetes minor."""
        ...

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        """Every version that is compatible with a Kubernetes minor, in no order."""
        ...


class ClusterSource(Protocol):
    """Looks up Kubernetes minors."""

    def minors(self) -> tuple[str, ...]:
        """Minors in standard support, e.g. 1.35."""
        ...


class AwsSource:
    """AMI releases from SSM public parameters; add-ons and Kubernetes minors from EKS.

    Args:
        ssm: boto3's Systems Manager client.
        eks: boto3's EKS client.
    """

    def __init__(self, *, ssm: Client, eks: Client) -> None:
        self._ssm = ssm
        self._eks = eks

    def release(self, kubernetes: str, ami_type: AmiType) -> Answer:
        """See `NodeImageSource.release`."""
        return self._parameter(kubernetes, f"{_AMIS[ami_type].folder}/recommended/release_version")

    def published(self, kubernetes: str, ami_type: AmiType, release: str) -> str:
        """See `NodeImageSource.published`; the AMI of 1.35.2-20260101 is named …-1.35-v20260101."""
        ami = _AMIS[ami_type]
        name = f"{ami.prefix}-{kubernetes}-v{release.rpartition('-')[2]}"
        return self._parameter(kubernetes, f"{ami.folder}/{name}/image_id").source

    def version(self, name: str, kubernetes: str) -> Answer:
        """See `AddonSource.version`."""
        for version in self._addon(name, kubernetes):
            if any(one["clusterVersion"] == kubernetes and one["defaultVersion"] for one in version["compatibilities"]):
                return Answer(version["addonVersion"], "EKS DescribeAddonVersions")
        raise NotFoundError(f"EKS has no default version of add-on {name} for Kubernetes {kubernetes}")

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        """See `AddonSource.versions`."""
        return tuple(version["addonVersion"] for version in self._addon(name, kubernetes))

    def minors(self) -> tuple[str, ...]:
        """See `ClusterSource.minors`."""
        try:
            pages = self._eks.get_paginator("describe_cluster_versions").paginate(versionStatus="STANDARD_SUPPORT")
            return tuple(one["clusterVersion"] for page in pages for one in page["clusterVersions"])
        except (BotoCoreError, ClientError) as error:
            raise _error("EKS DescribeClusterVersions", error) from error

    def _parameter(self, kubernetes: str, rest: str) -> Answer:
        name = f"/aws/service/eks/optimized-ami/{kubernetes}/{rest}"
        try:
            answer = self._ssm.get_parameter(Name=name)
        except (BotoCoreError, ClientError) as error:
            raise _error(f"SSM parameter {name}", error) from error
        return Answer(answer["Parameter"]["Value"], f"SSM {name}")

    def _addon(self, name: str, kubernetes: str) -> list[Mapping[str, Any]]:
        try:
            pages = self._eks.get_paginator("describe_addon_versions")
            answers = [*pages.paginate(addonName=name, kubernetesVersion=kubernetes)]
        except (BotoCoreError, ClientError) as error:
            raise _error(f"EKS add-on {name}", error) from error
        return [one for page in answers for addon in page["addons"] for one in addon["addonVersions"]]


def _error(what: str, error: BotoCoreError | ClientError) -> NotFoundError:
    is_absent = isinstance(error, ClientError) and error.response["Error"]["Code"] in _ABSENT
    return (NotFoundError if is_absent else NoAnswerError)(f"{what}: {error}")
