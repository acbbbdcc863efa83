"""RDS: instances, what they are configured with, and what a deleted one leaves."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.account.aws import Client
from infra.lifecycle.leftovers.found import Call, Found, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, monthly, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.refusals import unless_gone
from infra.spec.catalog import Catalog

INSTANCE = "RDS instance"
SNAPSHOT = "RDS snapshot"
RETAINED_BACKUP = "RDS retained backup"


def _find_instances(place: Place) -> Iterator[Found]:
    for one in pages(place.client("rds"), "describe_db_instances", "DBInstances"):
        yield Found(
            id=one["DBInstanceIdentifier"],
            tags=tags_in(one.get("TagList")),
            is_going=one.get("DBInstanceStatus") == "deleting",
            facts={
                "is_protected": bool(one.get("DeletionProtection")),
                "class": one["DBInstanceClass"],
                "gib": one.get("AllocatedStorage", 0),
                "copies": 2 if one.get("MultiAZ") else 1,
            },
        )


def _instance_price(found: Found, catalog: Catalog) -> float | None:
    """Class and storage, twice with a standby."""
    price = catalog.prices.databases.get(found.facts["class"])
    storage = monthly(catalog.prices.services.rds_gp3_gib_month.usd, found.facts["gib"])
    if price is None or price.usd is None or storage is None:
        return None
    return float(found.facts["copies"] * (price.usd + storage))


def _remove_instance(found: Found, _: Place | None = None) -> Iterator[Call]:
    name = {"DBInstanceIdentifier": found.id}
    if found.facts["is_protected"]:
        yield Call("rds", "ModifyDBInstance", {**name, "DeletionProtection": False, "ApplyImmediately": True})
    yield Call("rds", "DeleteDBInstance", {**name, "SkipFinalSnapshot": True, "DeleteAutomatedBackups": True})


def _delete_with_snapshot(found: Found) -> str:
    """A database that outlived its stack may hold what nobody has a copy of."""
    *unprotect, _ = _remove_instance(found)
    last = {"DBInstanceIdentifier": found.id, "FinalDBSnapshotIdentifier": f"{found.id}-last"}
    calls = (*unprotect, Call("rds", "DeleteDBInstance", last))
    return "; ".join(call.command(found.region) for call in calls)


def _find_snapshots(place: Place) -> Iterator[Found]:
    for one in pages(place.client("rds"), "describe_db_snapshots", "DBSnapshots", SnapshotType="manual"):
        yield Found(
            id=one["DBSnapshotIdentifier"],
            name=one["DBInstanceIdentifier"],
            tags=tags_in(one.get("TagList")),
            is_going=one.get("Status") == "deleting",
        )


def _find_retained_backups(place: Place) -> Iterator[Found]:
    """Backups of instances that are gone; those of an instance go with it."""
    key = "DBInstanceAutomatedBackups"
    for one in pages(place.client("rds"), "describe_db_instance_automated_backups", key):
        if one.get("Status") == "retained":
            yield Found(id=one["DbiResourceId"], name=one["DBInstanceIdentifier"], tags=tags_in(one.get("TagList")))


def _find_subnet_groups(place: Place) -> Iterator[Found]:
    rds = place.client("rds")
    for one in pages(rds, "describe_db_subnet_groups", "DBSubnetGroups"):
        yield from _tagged(rds, one["DBSubnetGroupName"], one["DBSubnetGroupArn"])


def _find_parameter_groups(place: Place) -> Iterator[Found]:
    rds = place.client("rds")
    for one in pages(rds, "describe_db_parameter_groups", "DBParameterGroups"):
        yield from _tagged(rds, one["DBParameterGroupName"], one["DBParameterGroupArn"])


def _tagged(rds: Client, name: str, arn: str) -> Iterator[Found]:
    """A group with its tags; none for RDS's own, `default` and `default.…`."""
    if name.partition(".")[0] != "default":
        with unless_gone():
            yield Found(id=name, tags=tags_in(rds.list_tags_for_resource(ResourceName=arn)["TagList"]))


KINDS = (
    Kind(
        name=INSTANCE,
        phase=Phase.STORES,
        find=_find_instances,
        remove=_remove_instance,
        reads=actions("rds", "DescribeDBInstances"),
        writes=actions("rds", "ModifyDBInstance DeleteDBInstance"),
        price=_instance_price,
        by_hand=_delete_with_snapshot,
    ),
    Kind(
        name=SNAPSHOT,
        phase=Phase.SNAPSHOTS,
        find=_find_snapshots,
        remove=one_call("rds", "DeleteDBSnapshot", "DBSnapshotIdentifier"),
        reads=actions("rds", "DescribeDBSnapshots"),
        writes=actions("rds", "DeleteDBSnapshot"),
        price=unknown,
    ),
    Kind(
        name=RETAINED_BACKUP,
        phase=Phase.SNAPSHOTS,
        find=_find_retained_backups,
        remove=one_call("rds", "DeleteDBInstanceAutomatedBackup", "DbiResourceId"),
        reads=actions("rds", "DescribeDBInstanceAutomatedBackups"),
        writes=actions("rds", "DeleteDBInstanceAutomatedBackup"),
        price=unknown,
    ),
    Kind(
        name="RDS subnet group",
        phase=Phase.TEMPLATES,
        find=_find_subnet_groups,
        remove=one_call("rds", "DeleteDBSubnetGroup", "DBSubnetGroupName"),
        reads=actions("rds", "DescribeDBSubnetGroups ListTagsForResource"),
        writes=actions("rds", "DeleteDBSubnetGroup"),
    ),
    Kind(
        name="RDS parameter group",
        phase=Phase.TEMPLATES,
        find=_find_parameter_groups,
        remove=one_call("rds", "DeleteDBParameterGroup", "DBParameterGroupName"),
        reads=actions("rds", "DescribeDBParameterGroups ListTagsForResource"),
        writes=actions("rds", "DeleteDBParameterGroup"),
    ),
)
"""Kinds of this module."""
