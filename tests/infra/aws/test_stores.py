"""Stateful resources: buckets, the file system, the database, repositories and their KMS keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.aws.registry import pull_through_prefix
from infra.policy import tokens
from infra.spec.protection import protection_of
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of, unusual, varied

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"
BUCKETS = ("checkpoints", "artifacts", "logs")


def part(environment: str, type_: str, bucket: str) -> dict[str, Any]:
    return graph(environment).find(type_, bucket).properties


def statements(environment: str, type_: str, name: str) -> dict[str, dict[str, Any]]:
    return {one["Sid"]: one for one in json.loads(part(environment, type_, name)["policy"])["Statement"]}


@every_environment
def test_bucket_names_contain_the_account(environment: str) -> None:
    settings = settings_of(environment)
    account = settings.aws.allowed_accounts[0]
    names = [one.properties["bucket"] for one in graph(environment).of_type(tokens.BUCKET)]
    assert sorted(names) == sorted(f"rtp-{settings.environment.name}-{purpose}-{account}" for purpose in BUCKETS)


def test_the_longest_environment_name_gives_valid_physical_names() -> None:
    assert max(len(one.properties["bucket"]) for one in unusual().of_type(tokens.BUCKET)) <= 63
    caches = unusual().of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    assert max(len(one.properties["ecrRepositoryPrefix"]) for one in caches) <= 30


@every_environment
@pytest.mark.parametrize("bucket", BUCKETS)
def test_buckets_block_public_access_and_disable_acls(environment: str, bucket: str) -> None:
    block = part(environment, tokens.BUCKET_PUBLIC_ACCESS, bucket)
    settings = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [block[setting] for setting in settings] == [True] * 4
    assert part(environment, tokens.BUCKET_OWNERSHIP, bucket)["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_buckets_require_tls_1_2(bucket: str) -> None:
    denied = statements("prod", tokens.BUCKET_POLICY, bucket)
    for sid, condition in (
        ("TlsOnly", {"Bool": {"aws:SecureTransport": "false"}}),
        ("NoOldTls", {"NumericLessThan": {"s3:TlsVersion": "1.2"}}),
    ):
        statement = denied[sid]
        assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", ["s3:*"])
        assert statement["Condition"] == condition
        assert len(statement["Resource"]) == 2


@pytest.mark.parametrize("bucket", ["checkpoints", "artifacts"])
def test_buckets_are_encrypted_with_the_storage_key(bucket: str) -> None:
    recording = graph("prod")
    found = recording.find(tokens.BUCKET_ENCRYPTION, bucket)
    (rule,) = found.properties["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    assert rule["bucketKeyEnabled"] is True
    assert recording.find(tokens.KEY, "storage").urn in found.property_dependencies["rules"]


def test_the_access_log_bucket_uses_sse_s3() -> None:
    (rule,) = part("prod", tokens.BUCKET_ENCRYPTION, "logs")["rules"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "AES256"}


def test_only_s3_may_deliver_access_logs_for_this_account() -> None:
    account = settings_of("prod").aws.allowed_accounts[0]
    (statement,) = [
        one for one in statements("prod", tokens.BUCKET_POLICY, "logs").values() if one["Effect"] == "Allow"
    ]
    assert statement["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": account}}
    assert {part("prod", "aws:s3/bucketLogging:BucketLogging", one)["targetPrefix"] for one in BUCKETS[:2]} == {
        "checkpoints/",
        "artifacts/",
    }


@every_environment
def test_overwritten_checkpoints_are_kept_for_the_configured_days(environment: str) -> None:
    storage = settings_of(environment).storage
    assert part(environment, tokens.BUCKET_VERSIONING, "checkpoints")["versioningConfiguration"]["status"] == "Enabled"
    (rule,) = part(environment, tokens.BUCKET_LIFECYCLE, "checkpoints")["rules"]
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": storage.noncurrent_days}
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": storage.abort_upload_days}
    assert rule["transitions"] == [{"days": storage.infrequent_access_days, "storageClass": "STANDARD_IA"}]
    assert rule["expiration"] == {"expiredObjectDeleteMarker": True}


def test_the_transition_to_standard_ia_is_optional() -> None:
    (rule,) = unusual().find(tokens.BUCKET_LIFECYCLE, "checkpoints").properties["rules"]
    assert "transitions" not in rule


@every_environment
def test_backups_of_mlflow_expire_no_later_than_their_artifacts(environment: str) -> None:
    everything, backups = part(environment, tokens.BUCKET_LIFECYCLE, "artifacts")["rules"]
    assert backups["filter"] == {"prefix": "backups/"}
    assert backups["expiration"]["days"] <= everything["noncurrentVersionExpiration"]["noncurrentDays"]


def test_access_logs_expire_and_checkpoints_do_not() -> None:
    (logs,) = part("prod", tokens.BUCKET_LIFECYCLE, "logs")["rules"]
    assert logs["expiration"] == {"days": 90}


@every_environment
def test_only_test_clusters_force_destroy_stores(environment: str) -> None:
    recording = graph(environment)
    flags = {one.properties["forceDestroy"] for one in recording.of_type(tokens.BUCKET)}
    flags |= {one.properties["forceDelete"] for one in recording.of_type(tokens.REPOSITORY)}
    assert flags == {environment == "test"}


@every_environment
def test_the_file_system_is_encrypted_and_has_a_mount_target_per_zone(environment: str) -> None:
    recording = graph(environment)
    targets = {one.name for one in recording.of_type("aws:efs/mountTarget:MountTarget")}
    assert targets == set(settings_of(environment).network.availability_zones)
    file_system = recording.find(tokens.FILE_SYSTEM, "datasets")
    assert file_system.properties["encrypted"] is True
    assert file_system.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "storage").urn,)


def test_the_file_system_denies_mounts_without_tls_and_root_access() -> None:
    denied = statements("prod", tokens.FILE_SYSTEM_POLICY, "datasets")
    assert {one["Effect"] for one in denied.values()} == {"Deny"}
    assert denied["TlsOnly"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert denied["NoRoot"]["Action"] == ["elasticfilesystem:ClientRootAccess"]


def test_access_points_enforce_the_configured_user() -> None:
    points = unusual().of_type(ACCESS_POINT)
    assert len(points) == 2
    for point in points:
        assert point.properties["posixUser"] == {"uid": 1234, "gid": 1234}
        creation = point.properties["rootDirectory"]["creationInfo"]
        assert (creation["ownerUid"], creation["ownerGid"]) == (1234, 1234)


@every_environment
def test_every_access_point_has_its_own_root_directory(environment: str) -> None:
    roots = {
        one.name: (
            one.properties["rootDirectory"]["path"],
            one.properties["rootDirectory"]["creationInfo"]["permissions"],
        )
        for one in graph(environment).of_type(ACCESS_POINT)
    }
    teams = [team.name for team in settings_of(environment).teams]
    assert roots == {
        "datasets": ("/datasets", "0770"),
        **{f"team-{team}": (f"/teams/{team}", "0750") for team in teams},
    }


def test_a_team_may_be_called_datasets() -> None:
    recording = varied({"teams": [{"name": "datasets"}]})
    assert {one.name for one in recording.of_type(ACCESS_POINT)} == {"datasets", "team-datasets"}


def test_only_the_datasets_access_point_is_protected() -> None:
    protected = {one.name for one in graph("prod").of_type(ACCESS_POINT) if one.protect or one.retain_on_delete}
    assert protected == {"datasets"}


@every_environment
def test_backups_follow_the_kind_of_environment(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    backup = part(environment, tokens.FILE_SYSTEM_BACKUP, "datasets")["backupPolicy"]
    assert backup == {"status": "ENABLED" if wanted.backup_days else "DISABLED"}
    assert part(environment, tokens.DATABASE, "mlflow")["backupRetentionPeriod"] == wanted.backup_days


@every_environment
def test_the_databases_protection_follows_the_kind_of_environment(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    database = part(environment, tokens.DATABASE, "mlflow")
    assert database["deletionProtection"] is wanted.deletion_protection
    assert database["skipFinalSnapshot"] is not wanted.final_snapshot
    assert ("finalSnapshotIdentifier" in database) is wanted.final_snapshot
    assert database["multiAz"] is settings_of(environment).database.multi_az


@every_environment
def test_the_database_is_private_encrypted_and_requires_tls(environment: str) -> None:
    recording = graph(environment)
    database = recording.find(tokens.DATABASE, "mlflow")
    assert database.properties["publiclyAccessible"] is False
    assert database.properties["storageEncrypted"] is True
    assert database.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "database").urn,)
    parameters = recording.find(tokens.DATABASE_PARAMETERS, "mlflow")
    assert database.property_dependencies["parameterGroupName"] == (parameters.urn,)
    assert ("rds.force_ssl", "1") in {(one["name"], one["value"]) for one in parameters.properties["parameters"]}


def test_rds_manages_the_database_password() -> None:
    database = part("prod", tokens.DATABASE, "mlflow")
    assert database["manageMasterUserPassword"] is True
    assert "password" not in database


def test_the_parameter_group_has_the_databases_major_version() -> None:
    assert unusual().find(tokens.DATABASE_PARAMETERS, "mlflow").properties["family"] == "postgres16"
    assert unusual().find(tokens.DATABASE, "mlflow").properties["engineVersion"] == "16"


def test_the_database_depends_on_its_log_groups() -> None:
    recording = graph("prod")
    database = recording.find(tokens.DATABASE, "mlflow")
    for log in database.properties["enabledCloudwatchLogsExports"]:
        group = recording.find(tokens.LOG_GROUP, f"database-{log}")
        assert group.properties["name"] == f"/aws/rds/instance/{database.properties['identifier']}/{log}"
        assert group.urn in database.dependencies


@every_environment
def test_every_image_of_ours_has_a_repository_with_immutable_tags(environment: str) -> None:
    ours = {name for name, image in load_release().images.items() if image.is_ours}
    repositories = graph(environment).of_type(tokens.REPOSITORY)
    assert {one.name for one in repositories} == ours == set(graph(environment).outputs["registries"])
    for one in repositories:
        assert one.properties["imageTagMutability"] == "IMMUTABLE"
        assert one.properties["imageScanningConfiguration"] == {"scanOnPush": True}
        assert one.properties["encryptionConfigurations"][0]["encryptionType"] == "KMS"


def test_image_references_point_to_the_stacks_repositories() -> None:
    urls = graph("prod").outputs["registries"]
    image = load_release().images["trainer"]
    registry = urls["trainer"].removesuffix(f"/{image.repository}")
    assert image.reference(registry).startswith(urls["trainer"])


def test_untagged_images_expire_by_age_and_others_by_count() -> None:
    policy = json.loads(part("prod", "aws:ecr/lifecyclePolicy:LifecyclePolicy", "trainer")["policy"])
    registry = settings_of("prod").registry
    untagged, *tagged = policy["rules"]
    assert (untagged["selection"]["tagStatus"], untagged["selection"]["countNumber"]) == (
        "untagged",
        registry.untagged_days,
    )
    # One of derived images and one of releases, so that neither expires the other.
    assert [rule["selection"]["countNumber"] for rule in tagged] == [registry.keep_images] * 2
    assert tagged[0]["selection"]["tagPatternList"] != tagged[1]["selection"]["tagPatternList"]
    assert [rule["rulePriority"] for rule in policy["rules"]] == [1, 2, 3]


def test_pull_through_caches_have_the_stacks_prefix() -> None:
    rules = graph("prod").of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    found = {one.properties["upstreamRegistryUrl"]: one.properties["ecrRepositoryPrefix"] for one in rules}
    assert found == {one: pull_through_prefix("rtp-prod", one) for one in settings_of("prod").registry.pull_through}
    assert graph("dev").of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule") == ()


@every_environment
def test_every_key_rotates_and_has_a_deletion_window(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    for key in graph(environment).of_type(tokens.KEY):
        assert key.properties["enableKeyRotation"] is True
        assert key.properties["deletionWindowInDays"] == wanted.kms_deletion_days


@every_environment
def test_every_log_group_is_encrypted_with_a_key_that_allows_it(environment: str) -> None:
    recording = graph(environment)
    key = recording.find(tokens.KEY, "logs")
    patterns = statements(environment, tokens.KEY, "logs")["CloudWatchLogs"]["Condition"]["ArnLike"][
        "kms:EncryptionContext:aws:logs:arn"
    ]
    prefixes = [pattern.partition(":log-group:")[2].removesuffix("*") for pattern in patterns]
    for group in recording.of_type(tokens.LOG_GROUP):
        assert group.property_dependencies["kmsKeyId"] == (key.urn,)
        assert group.properties["name"].startswith(tuple(prefixes))
