"""Storage classes, and the file system as two claims in every team's namespace: everybody's datasets, the team's runs.

NFS needs no opening in the network policies: the EFS driver mounts on the node, and the node's traffic is not a pod's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.spec.cluster_names import DATASETS_CLAIM, EFS_CLASS, GP3_CLASS, RUNS_CLAIM
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings

_NOMINAL_SIZE = "1Ti"
"""Kubernetes wants a size of every volume; EFS grows by itself, and nothing enforces this one."""

_ACCESS_MODES = ("ReadWriteMany",)
"""Of the datasets too: the EFS driver refuses to mount ReadOnlyMany (aws-efs-csi-driver issue 972, still so in 3.4.1)."""


def storage(
    settings: StackSettings,
    release: ReleaseManifest,
    *,
    file_system_id: str,
    datasets_access_point: str,
    team_access_points: Mapping[str, str],
    volume_key_arn: str | None,
) -> tuple[Manifest, ...]:
    """The class of block volumes, and for every team a volume of the datasets and one of its runs, with their claims.

    Args:
        settings: the environment.
        release: the release.
        file_system_id: EFS file system.
        datasets_access_point: its access point of the datasets.
        team_access_points: that of each team's runs, by team; nothing outside the team's directory is seen through it.
        volume_key_arn: KMS key of block volumes; None takes the account's default key of EBS.
    """
    pairs = [
        _bound(claim, team, release, handle=f"{file_system_id}::{access_point}", options=options)
        for team in settings.teams
        for claim, access_point, options in (
            # The option is the volume's: it holds whatever a pod says of its own mounts.
            (DATASETS_CLAIM, datasets_access_point, ("ro",)),
            (RUNS_CLAIM, team_access_points[team.name], ()),
        )
    ]
    # All volumes first: a run of objects of one kind is made at once.
    return (_block_class(release, volume_key_arn), *(volume for volume, _ in pairs), *(claim for _, claim in pairs))


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
        # A volume lies in one zone: it has to be made where its pod goes.
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
        reclaimPolicy="Delete",
    )


def _bound(
    claim_name: str, team: Team, release: ReleaseManifest, *, handle: str, options: Sequence[str]
) -> tuple[Manifest, Manifest]:
    """A volume and the one claim that can have it: `claimRef` keeps it from every other namespace, bound or not.

    No StorageClass `efs` exists: the name ties claim and volume together, and nothing can be provisioned from it.
    """
    marks = labels("storage", version=release.platform, team=team.name)
    name = f"{claim_name}-{team.name}"
    volume = api_object(
        "v1",
        "PersistentVolume",
        name,
        labels=marks,
        spec={
            "capacity": {"storage": _NOMINAL_SIZE},
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": EFS_CLASS,
            # The data outlives the namespace that has seen it.
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
        labels=marks,
        spec={
            "accessModes": list(_ACCESS_MODES),
            "storageClassName": EFS_CLASS,
            "volumeName": name,
            "resources": {"requests": {"storage": _NOMINAL_SIZE}},
        },
    )
    return volume, claim
