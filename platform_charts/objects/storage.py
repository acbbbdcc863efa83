"""The StorageClasses, and two EFS volumes per team: the shared datasets and the team's runs.

NFS needs no network policy, because the EFS driver mounts it on the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.spec.cluster_names import DATASETS_CLAIM, EFS_CLASS, GP3_CLASS, RUNS_CLAIM
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings

_NOMINAL_SIZE = "1Ti"
"""Kubernetes requires a capacity; EFS is elastic and does not enforce it."""

_ACCESS_MODES = ("ReadWriteMany",)
"""For the datasets too: the EFS driver rejects ReadOnlyMany (aws-efs-csi-driver issue 972, as of 3.4.1)."""


def storage(
    settings: StackSettings,
    release: ReleaseManifest,
    *,
    file_system_id: str,
    datasets_access_point: str,
    team_access_points: Mapping[str, str],
    volume_key_arn: str | None,
) -> tuple[Manifest, ...]:
    """The StorageClasses, and each team's volumes for datasets and runs with their claims.

    Args:
        settings: the environment.
        release: the pinned versions.
        file_system_id: EFS file system.
        datasets_access_point: access point for the datasets.
        team_access_points: access point for each team's runs, by team.
        volume_key_arn: KMS key of block volumes; None for the account's default EBS key.
    """
    pairs = [
        _volume_and_claim(claim, team, release, handle=f"{file_system_id}::{access_point}", options=options)
        for team in settings.teams
        for claim, access_point, options in (
            # A mount option of the volume applies regardless of the pod's volumeMounts.
            (DATASETS_CLAIM, datasets_access_point, ("ro",)),
            (RUNS_CLAIM, team_access_points[team.name], ()),
        )
    ]
    # All volumes first: the installer applies a run of objects of one kind in parallel.
    classes = (_block_class(release, volume_key_arn), _shared_class(release))
    return (*classes, *(volume for volume, _ in pairs), *(claim for _, claim in pairs))


def _block_class(release: ReleaseManifest, key_arn: str | None) -> Manifest:
    parameters = {"type": "gp3", "encrypted": "true"}
    return api_object(
        "storage.k8s.io/v1",
        "StorageClass",
        GP3_CLASS,
        labels=labels("storage", version=release.platform),
        annotations={"storageclass.kubernetes.io/is-default-class": "true"},
        provisioner="ebs.csi.aws.com",
        parameters=parameters if key_arn is None else {**parameters, "kmsKeyId": key_arn},
        # EBS volumes are zonal, so provisioning waits for the pod to be scheduled.
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
        reclaimPolicy="Delete",
    )


def _shared_class(release: ReleaseManifest) -> Manifest:
    """The class whose name binds the claims to their EFS volumes; nothing is provisioned from it.

    Kubernetes does not require that it exists, but Pulumi looks it up for every claim and warns.
    """
    return api_object(
        "storage.k8s.io/v1",
        "StorageClass",
        EFS_CLASS,
        labels=labels("storage", version=release.platform),
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="Immediate",
        reclaimPolicy="Retain",
    )


def _volume_and_claim(
    claim_name: str, team: Team, release: ReleaseManifest, *, handle: str, options: Sequence[str]
) -> tuple[Manifest, Manifest]:
    """A volume and its claim; `claimRef` reserves the volume for this claim."""
    object_labels = labels("storage", version=release.platform, team=team.name)
    name = f"{claim_name}-{team.name}"
    volume = api_object(
        "v1",
        "PersistentVolume",
        name,
        labels=object_labels,
        spec={
            "capacity": {"storage": _NOMINAL_SIZE},
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": EFS_CLASS,
            # The data outlives the team's namespace.
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": team.name, "name": claim_name},
            "mountOptions": ["tls", "iam", *options],
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle},
        },
    )
    claim = api_object(
        "v1",
        "PersistentVolumeClaim",
        claim_name,
        namespace=team.name,
        labels=object_labels,
        spec={
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": EFS_CLASS,
            "volumeName": name,
            "resources": {"requests": {"storage": _NOMINAL_SIZE}},
        },
    )
    return volume, claim
