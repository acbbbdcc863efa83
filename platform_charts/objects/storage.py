"""The StorageClasses, two EFS volumes per team, for the shared datasets and the team's runs, and the volume by which datasets are written.

Each team has a third volume if the stack has an FSx for Lustre file system. Neither NFS nor Lustre needs a network policy, because
the drivers mount them on the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infra.spec.cluster_names import (
    DATA_NAMESPACE,
    DATASETS_CLAIM,
    EFS_CLASS,
    GP3_CLASS,
    LUSTRE_CLAIM,
    LUSTRE_CLASS,
    RUNS_CLAIM,
)
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.names import KIND_TAG, PLATFORM_TAG, STACK_TAG, node_tags
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

_VOLUME_TAGS = (PLATFORM_TAG, STACK_TAG, KIND_TAG)
"""Tags of the stack that its EBS volumes have (EBS CSI driver, "Tagging")."""

_NOMINAL_SIZE = "1Ti"
"""Kubernetes requires a capacity; EFS is elastic, and nothing enforces it for a shared file system."""

_ACCESS_MODES = ("ReadWriteMany",)
"""For the datasets too: the EFS driver rejects ReadOnlyMany (aws-efs-csi-driver issue 972, as of 3.4.1), and so does the driver of
FSx for Lustre (aws-fsx-csi-driver 1.9.0, `volumeCaps`)."""


class LustreVolume(NamedTuple):
    """What a client needs to mount an FSx for Lustre file system: its ID, fs-…, its host name and its mount name."""

    id: str
    dns_name: str
    mount_name: str


class _Source(NamedTuple):
    """What a volume mounts: StorageClass, mount options, and the driver with its handle and attributes."""

    storage_class: str
    options: Sequence[str]
    csi: Mapping[str, Any]


def storage(
    settings: StackSettings,
    release: ReleaseManifest,
    *,
    file_system_id: str,
    datasets_access_point: str,
    team_access_points: Mapping[str, str],
    volume_key_arn: str | None,
    lustre: LustreVolume | None = None,
) -> tuple[Manifest, ...]:
    """The StorageClasses, each team's volumes for datasets and runs, and the one to write datasets, with their claims.

    Args:
        settings: the environment.
        release: the pinned versions.
        file_system_id: EFS file system.
        datasets_access_point: access point for the datasets.
        team_access_points: access point for each team's runs, by team.
        volume_key_arn: KMS key of block volumes; None for the account's default EBS key.
        lustre: the FSx for Lustre file system; None without one.
    """
    datasets = f"{file_system_id}::{datasets_access_point}"
    of_teams = [
        _volume_and_claim(claim, team.name, release, source=source, team=team.name)
        for team in settings.teams
        for claim, source in (
            # A mount option of the volume applies regardless of the pod's volumeMounts.
            (DATASETS_CLAIM, _efs(datasets, "ro")),
            (RUNS_CLAIM, _efs(f"{file_system_id}::{team_access_points[team.name]}")),
            *([] if lustre is None else [(LUSTRE_CLAIM, _lustre(lustre))]),
        )
    ]
    pairs = [*of_teams, _volume_and_claim(DATASETS_CLAIM, DATA_NAMESPACE, release, source=_efs(datasets))]
    # All volumes first: the installer applies a run of objects of one kind in parallel.
    shared = (EFS_CLASS,) if lustre is None else (EFS_CLASS, LUSTRE_CLASS)
    classes = (_block_class(settings, release, volume_key_arn), *(_shared_class(name, release) for name in shared))
    return (*classes, *(volume for volume, _ in pairs), *(claim for _, claim in pairs))


def _block_class(settings: StackSettings, release: ReleaseManifest, key_arn: str | None) -> Manifest:
    """The class of volumes that pods claim; the default one, where no others have claims without a class."""
    default = {} if settings.cluster.is_shared else {"storageclass.kubernetes.io/is-default-class": "true"}
    # The driver's own tags name the cluster only. Parameters are immutable, so tags that may change are not among these.
    tags = {key: value for key, value in node_tags(settings).items() if key in _VOLUME_TAGS}
    parameters = {
        "type": "gp3",
        "encrypted": "true",
        **{f"tagSpecification_{number}": f"{key}={value}" for number, (key, value) in enumerate(tags.items(), start=1)},
    }
    return api_object(
        "storage.k8s.io/v1",
        "StorageClass",
        GP3_CLASS,
        labels=labels("storage", version=release.platform),
        annotations=default,
        provisioner="ebs.csi.aws.com",
        parameters=parameters if key_arn is None else {**parameters, "kmsKeyId": key_arn},
        # EBS volumes are zonal, so provisioning waits for the pod to be scheduled.
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
        reclaimPolicy="Delete",
    )


def _efs(handle: str, *options: str) -> _Source:
    return _Source(EFS_CLASS, ("tls", "iam", *options), {"driver": "efs.csi.aws.com", "volumeHandle": handle})


def _lustre(volume: LustreVolume) -> _Source:
    """The root of the file system, read-only.

    `flock` lets programs lock the files that they read, as HDF5 does.
    """
    attributes = {"dnsname": volume.dns_name, "mountname": volume.mount_name}
    driver = {"driver": "fsx.csi.aws.com", "volumeHandle": volume.id, "volumeAttributes": attributes}
    return _Source(LUSTRE_CLASS, ("ro", "flock"), driver)


def _shared_class(name: str, release: ReleaseManifest) -> Manifest:
    """A class whose name binds the claims to their volumes; nothing is provisioned from it.

    Kubernetes does not require that it exists, but Pulumi looks it up for every claim and warns.
    """
    return api_object(
        "storage.k8s.io/v1",
        "StorageClass",
        name,
        labels=labels("storage", version=release.platform),
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="Immediate",
        reclaimPolicy="Retain",
    )


def _volume_and_claim(
    claim_name: str,
    namespace: str,
    release: ReleaseManifest,
    *,
    source: _Source,
    team: str | None = None,
) -> tuple[Manifest, Manifest]:
    """A volume and its claim; `claimRef` reserves the volume for this claim."""
    object_labels = labels("storage", version=release.platform, team=team)
    name = f"{claim_name}-{namespace}"
    volume = api_object(
        "v1",
        "PersistentVolume",
        name,
        labels=object_labels,
        spec={
            "capacity": {"storage": _NOMINAL_SIZE},
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": source.storage_class,
            # The data outlives the team's namespace.
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim_name},
            "mountOptions": list(source.options),
            "csi": dict(source.csi),
        },
    )
    claim = api_object(
        "v1",
        "PersistentVolumeClaim",
        claim_name,
        namespace=namespace,
        labels=object_labels,
        spec={
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": source.storage_class,
            "volumeName": name,
            "resources": {"requests": {"storage": _NOMINAL_SIZE}},
        },
    )
    return volume, claim
