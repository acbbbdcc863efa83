"""The calls that backup and drill make to AWS, and the policy of their role in the stack's graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from infra.policy import tokens
from platform_charts.images.mlflow_server.backup.drill import restore_drill
from platform_charts.images.mlflow_server.backup.take import take_backup
from platform_charts.images.mlflow_server.environment import BackupSettings, DrillSettings
from tests.infra.aws.graphs import graph
from tests.platform_charts.images.mlflow_server.backups import Backed

pytestmark = pytest.mark.extended

BUCKET = "arn:aws:s3:::rtp-prod-artifacts-777788889999"

_ACTIONS = {
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "ListObjectVersions": "s3:ListBucketVersions",
    "PutObject": "s3:PutObject",
}
"""Permission that an operation of S3 needs, without a version (Service Authorization Reference)."""


@pytest.fixture
def calls(backed: Backed) -> Iterator[set[tuple[str, str]]]:
    """What a backup and a drill of it have needed: actions, each with its resource."""
    found: set[tuple[str, str]] = set()
    bucket, s3 = backed.services.bucket, backed.services.client("s3")

    def record(model: Any, params: dict[str, Any], **_: object) -> None:  # noqa: ANN401 - of botocore
        path = params["url_path"].partition("?")[0].removeprefix(f"/{bucket}").removeprefix("/")
        version = "Version" if "versionId" in params.get("query_string", {}) else ""
        found.add((_ACTIONS[model.name] + version, f"{BUCKET}/{path}" if path else BUCKET))

    s3.meta.events.register("before-call.s3", record)
    manifest = take_backup(BackupSettings(bucket=bucket), backed.new_database(), s3)
    settings = DrillSettings(
        bucket=bucket, backup=manifest.identifier, keeps=False, artifacts_to_read=3, storage_bytes=2**40
    )
    assert restore_drill(settings, backed.new_database(), s3).passed
    yield found
    s3.meta.events.unregister("before-call.s3", record)


def test_the_role_of_backup_and_drill_allows_every_call_that_they_make(calls: set[tuple[str, str]]) -> None:
    document = json.loads(graph("prod").find(tokens.ROLE_POLICY, "mlflow-backup").properties["policy"])
    allowed = [(set(one["Action"]), one["Resource"]) for one in document["Statement"]]
    refused = {
        (action, resource)
        for action, resource in calls
        if not any(action in actions and any(fnmatchcase(resource, one) for one in known) for actions, known in allowed)
    }
    assert refused == set()
    assert {action for action, _ in calls} >= {"s3:PutObject", "s3:GetObject", "s3:GetObjectVersion"}
