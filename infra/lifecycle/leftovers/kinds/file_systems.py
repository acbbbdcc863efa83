"""EBS volumes and snapshots, EFS, FSx, and their recovery points in AWS Backup."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.leftovers.found import Call, Found, Key, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, monthly, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.kinds.compute import INSTANCE
from infra.lifecycle.leftovers.refusals import unless_gone, unless_whole_gone
from infra.spec.catalog import Catalog

EFS = "EFS file system"
RECOVERY_POINT = "recovery point"


def _find_volumes(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_volumes", "Volumes"):
        if one["State"] != "deleted":
            users = [attachment["InstanceId"] for attachment in one.get("Attachments") or ()]
            yield Found(
                id=one["VolumeId"],
                tags=tags_in(one.get("Tags")),
                parents=tuple(Key(INSTANCE, user) for user in users),
                is_going=one["State"] == "deleting",
                facts={"type": one.get("VolumeType"), "gib": one["Size"]},
            )


def _volume_price(found: Found, catalog: Catalog) -> float | None:
    """The price of the storage; provisioned throughput costs more."""
    if found.facts["type"] != "gp3":
        return None
    return monthly(catalog.prices.services.gp3_gib_month.usd, found.facts["gib"])


def _find_snapshots(place: Place) -> Iterator[Found]:
    for one in pages(place.client("ec2"), "describe_snapshots", "Snapshots", OwnerIds=["self"]):
        yield Found(id=one["SnapshotId"], name=one.get("Description") or "", tags=tags_in(one.get("Tags")))


def _file_systems(place: Place) -> Iterator[dict[str, str]]:
    yield from pages(place.client("efs"), "describe_file_systems", "FileSystems")


def _find_file_systems(place: Place) -> Iterator[Found]:
    for one in pages(place.client("efs"), "describe_file_systems", "FileSystems"):
        if one["LifeCycleState"] != "deleted":
            is_going = one["LifeCycleState"] == "deleting"
            yield Found(id=one["FileSystemId"], tags=tags_in(one.get("Tags")), is_going=is_going)


def _find_mount_targets(place: Place) -> Iterator[Found]:
    yield from _parts(place, "describe_mount_targets", "MountTargets", "MountTargetId")


def _find_access_points(place: Place) -> Iterator[Found]:
    yield from _parts(place, "describe_access_points", "AccessPoints", "AccessPointId")


def _parts(place: Place, operation: str, key: str, id_: str) -> Iterator[Found]:
    """What file systems are made of."""
    efs = place.client("efs")
    for system in _file_systems(place):
        for one in unless_whole_gone(pages(efs, operation, key, FileSystemId=system["FileSystemId"])):
            if one["LifeCycleState"] != "deleted":
                yield Found(
                    id=one[id_],
                    tags=tags_in(one.get("Tags")),
                    parents=(Key(EFS, system["FileSystemId"]),),
                    is_going=one["LifeCycleState"] == "deleting",
                )


def _find_fsx(place: Place) -> Iterator[Found]:
    for one in pages(place.client("fsx"), "describe_file_systems", "FileSystems"):
        lustre = one.get("LustreConfiguration") or {}
        yield Found(
            id=one["FileSystemId"],
            tags=tags_in(one.get("Tags")),
            is_going=one.get("Lifecycle") == "DELETING",
            facts={"gib": one.get("StorageCapacity", 0), "throughput": lustre.get("PerUnitStorageThroughput")},
        )


def _fsx_price(found: Found, catalog: Catalog) -> float | None:
    throughput = found.facts["throughput"]
    price = catalog.prices.lustre.get("scratch" if throughput is None else f"persistent-{throughput}")
    return monthly(price.usd if price else None, found.facts["gib"])


def _vaults(place: Place) -> Iterator[dict[str, str]]:
    yield from pages(place.client("backup"), "list_backup_vaults", "BackupVaultList")


def _find_vaults(place: Place) -> Iterator[Found]:
    backup = place.client("backup")
    for vault in _vaults(place):
        with unless_gone():
            tags = backup.list_tags(ResourceArn=vault["BackupVaultArn"]).get("Tags") or {}
            yield Found(id=vault["BackupVaultName"], tags=tags)


def _find_recovery_points(place: Place) -> Iterator[Found]:
    """AWS Backup copies the tags of what it backs up to the recovery points (AWS Backup developer guide, "Copy tags")."""
    backup = place.client("backup")
    for name in (vault["BackupVaultName"] for vault in _vaults(place)):
        points = pages(backup, "list_recovery_points_by_backup_vault", "RecoveryPoints", BackupVaultName=name)
        for point in unless_whole_gone(points):
            with unless_gone():
                tags = backup.list_tags(ResourceArn=point["RecoveryPointArn"]).get("Tags") or {}
                yield Found(
                    id=point["RecoveryPointArn"],
                    tags=tags,
                    is_going=point.get("Status") == "DELETING",
                    facts={"vault": name},
                )


def _remove_recovery_point(found: Found, _: Place) -> Iterator[Call]:
    vault = found.facts["vault"]
    yield Call("backup", "DeleteRecoveryPoint", {"BackupVaultName": vault, "RecoveryPointArn": found.id})


KINDS = (
    Kind(
        name="EFS mount target",
        phase=Phase.STORES,
        find=_find_mount_targets,
        remove=one_call("efs", "DeleteMountTarget", "MountTargetId"),
        reads=actions("elasticfilesystem", "DescribeFileSystems DescribeMountTargets"),
        # EFS checks the second one of its caller too (EFS API reference, DeleteMountTarget).
        writes=(*actions("elasticfilesystem", "DeleteMountTarget"), *actions("ec2", "DeleteNetworkInterface")),
    ),
    Kind(
        name="EFS access point",
        phase=Phase.STORES,
        find=_find_access_points,
        remove=one_call("efs", "DeleteAccessPoint", "AccessPointId"),
        reads=actions("elasticfilesystem", "DescribeFileSystems DescribeAccessPoints"),
        writes=actions("elasticfilesystem", "DeleteAccessPoint"),
    ),
    Kind(
        name=EFS,
        phase=Phase.FILE_SYSTEMS,
        find=_find_file_systems,
        remove=one_call("efs", "DeleteFileSystem", "FileSystemId"),
        reads=actions("elasticfilesystem", "DescribeFileSystems"),
        writes=actions("elasticfilesystem", "DeleteFileSystem"),
        price=unknown,
    ),
    Kind(
        name="FSx file system",
        phase=Phase.STORES,
        find=_find_fsx,
        remove=one_call("fsx", "DeleteFileSystem", "FileSystemId"),
        reads=actions("fsx", "DescribeFileSystems"),
        writes=actions("fsx", "DeleteFileSystem"),
        price=_fsx_price,
    ),
    Kind(
        name="EBS volume",
        phase=Phase.VOLUMES,
        find=_find_volumes,
        remove=one_call("ec2", "DeleteVolume", "VolumeId"),
        reads=actions("ec2", "DescribeVolumes"),
        writes=actions("ec2", "DeleteVolume"),
        price=_volume_price,
    ),
    Kind(
        name="EBS snapshot",
        phase=Phase.SNAPSHOTS,
        find=_find_snapshots,
        remove=one_call("ec2", "DeleteSnapshot", "SnapshotId"),
        reads=actions("ec2", "DescribeSnapshots"),
        writes=actions("ec2", "DeleteSnapshot"),
        price=unknown,
    ),
    Kind(
        name=RECOVERY_POINT,
        phase=Phase.SNAPSHOTS,
        find=_find_recovery_points,
        remove=_remove_recovery_point,
        reads=actions("backup", "ListBackupVaults ListRecoveryPointsByBackupVault ListTags"),
        writes=actions("backup", "DeleteRecoveryPoint"),
        price=unknown,
    ),
    Kind(
        name="backup vault",
        phase=Phase.VAULTS,
        find=_find_vaults,
        remove=one_call("backup", "DeleteBackupVault", "BackupVaultName"),
        reads=actions("backup", "ListBackupVaults ListTags"),
        writes=actions("backup", "DeleteBackupVault"),
    ),
)
"""Kinds of this module."""
