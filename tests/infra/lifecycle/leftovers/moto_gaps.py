"""What moto lacks of the services that the inventory lists, as methods of its own responses.

Placement groups (EC2), pull-through cache rules and repository creation templates (ECR), recovery points (AWS Backup), the ID and
the deletion of retained backups (RDS), and the AMIs that EKS publishes (Systems Manager). Shapes: botocore's service models, which
moto serializes the answers by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from moto.backup import urls as backup_urls
from moto.backup.models import backup_backends
from moto.backup.responses import BackupResponse
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.ecr.responses import ECRResponse
from moto.rds.models import DBInstanceAutomatedBackup
from moto.rds.responses import RDSResponse
from moto.ssm.models import Parameter, SimpleSystemManagerBackend

Store = dict[str, dict[str, Any]]
"""Resources by ID."""

_AMIS = "/aws/service/eks/optimized-ami/"
_POINTS_PATH = "{0}/backup-vaults/(?P<name>[^/]+)/recovery-points/.*$"


@contextmanager
def filled() -> Iterator[None]:
    """Within the block moto has what it lacks, empty at the start."""
    with pytest.MonkeyPatch.context() as patch:
        for response, methods in (
            (EC2Response, _placement_groups()),
            (ECRResponse, _caches()),
            (BackupResponse, _recovery_points()),
            (RDSResponse, _retained_backups()),
        ):
            for name, method in methods.items():
                patch.setattr(response, name, method, raising=False)
        patch.setitem(backup_urls.url_paths, _POINTS_PATH, BackupResponse.dispatch)
        resource_id = property(lambda backup: f"db-{backup.db_instance_identifier}")
        patch.setattr(DBInstanceAutomatedBackup, "dbi_resource_id", resource_id, raising=False)
        patch.setattr(SimpleSystemManagerBackend, "get_parameter", _with_amis(SimpleSystemManagerBackend.get_parameter))
        yield


def _with_amis(get_parameter: Callable[..., Any]) -> Callable[..., Any]:
    def found(self: Any, name: str) -> Any:  # noqa: ANN401 - moto has no types
        if not name.startswith(_AMIS):
            return get_parameter(self, name)
        now = datetime.now(UTC)
        return Parameter(self.account_id, name, "ami-0123456789abcdef0", "String", None, None, None, now, 1, "text")

    return found


def _stored(
    names: tuple[str, str, str],
    *,
    key: str,
    one: str | None,
    many: str,
    unknown: Exception,
    others: Callable[[Any], Mapping[str, Any]],
) -> Mapping[str, Any]:
    """Methods that create, describe and delete the resources of a kind, by the parameter with their name."""
    found: Store = {}

    def create(self: Any) -> ActionResult:  # noqa: ANN401 - as above
        name = self._get_param(key)
        found[name] = {key: name, **others(self)}
        return ActionResult({one: found[name]} if one else found[name])

    def describe(_: object) -> ActionResult:
        return ActionResult({many: list(found.values())})

    def delete(self: Any) -> ActionResult:  # noqa: ANN401 - as above
        if found.pop(self._get_param(key), None) is None:
            raise unknown
        return ActionResult({})

    return dict(zip(names, (create, describe, delete), strict=True))


def _placement_groups() -> Mapping[str, Any]:
    def others(request: Any) -> Mapping[str, Any]:  # noqa: ANN401 - as above
        tags = [tag for one in request._get_param("TagSpecifications", []) for tag in one["Tags"]]
        return {"State": "available", "Strategy": "cluster", "Tags": tags}

    return _stored(
        ("create_placement_group", "describe_placement_groups", "delete_placement_group"),
        key="GroupName",
        one="PlacementGroup",
        many="PlacementGroups",
        unknown=EC2ClientError("InvalidPlacementGroup.Unknown", "The Placement Group is unknown."),
        others=others,
    )


def _caches() -> Mapping[str, Any]:
    rule, template = "pull_through_cache_rule", "repository_creation_template"
    return {
        **_stored(
            (f"create_{rule}", f"describe_{rule}s", f"delete_{rule}"),
            key="ecrRepositoryPrefix",
            one=None,
            many="pullThroughCacheRules",
            unknown=JsonRESTError("PullThroughCacheRuleNotFoundException", "The rule does not exist."),
            others=lambda request: {"upstreamRegistryUrl": request._get_param("upstreamRegistryUrl")},
        ),
        **_stored(
            (f"create_{template}", f"describe_{template}s", f"delete_{template}"),
            key="prefix",
            one="repositoryCreationTemplate",
            many="repositoryCreationTemplates",
            unknown=JsonRESTError("TemplateNotFoundException", "The template does not exist."),
            others=lambda request: {"appliedFor": request._get_param("appliedFor")},
        ),
    }


POINTS: Store = {}
"""Recovery points by ARN. No API makes one of a file system but a backup job, which takes hours."""


def add_recovery_point(vault: str, arn: str, *, account: str, region: str, tags: Mapping[str, str]) -> None:
    """Put a recovery point of a file system into a vault."""
    POINTS[arn] = {"RecoveryPointArn": arn, "BackupVaultName": vault, "ResourceType": "EFS", "Status": "COMPLETED"}
    backend = backup_backends[account][region]
    backend.tagger.tag_resource(arn, [{"Key": key, "Value": value} for key, value in tags.items()])


def _recovery_points() -> Mapping[str, Any]:
    POINTS.clear()

    def list_recovery_points_by_backup_vault(self: Any) -> ActionResult:  # noqa: ANN401 - as above
        vault = self.path.split("/")[2]
        found = [one for one in POINTS.values() if one["BackupVaultName"] == vault]
        return ActionResult({"RecoveryPoints": found})

    def delete_recovery_point(self: Any) -> ActionResult:  # noqa: ANN401 - as above
        if POINTS.pop(unquote(self.path).partition("/recovery-points/")[2], None) is None:
            raise JsonRESTError("ResourceNotFoundException", "The recovery point does not exist.")
        return ActionResult({})

    return {one.__name__: one for one in (list_recovery_points_by_backup_vault, delete_recovery_point)}


def _retained_backups() -> Mapping[str, Any]:
    def delete_db_instance_automated_backup(self: Any) -> ActionResult:  # noqa: ANN401 - as above
        wanted = self.params["DbiResourceId"] if "DbiResourceId" in self.params else self.params["dbi_resource_id"]
        instance = wanted.removeprefix("db-")
        for id_, snapshot in list(self.backend.database_snapshots.items()):
            if snapshot.db_instance_identifier == instance and snapshot.snapshot_type == "automated":
                del self.backend.database_snapshots[id_]
        return ActionResult({})

    return {"delete_db_instance_automated_backup": delete_db_instance_automated_backup}
