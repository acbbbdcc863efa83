"""What outlives a run: buckets, the file system, the database, the images, and the keys they are encrypted with."""

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
def test_bucket_names_are_unique_over_accounts(environment: str) -> None:
    settings = settings_of(environment)
    account = settings.aws.allowed_accounts[0]
    names = [one.properties["bucket"] for one in graph(environment).of_type(tokens.BUCKET)]
    assert sorted(names) == sorted(f"rtp-{settings.environment.name}-{purpose}-{account}" for purpose in BUCKETS)


def test_the_longest_environment_name_still_makes_legal_names() -> None:
    assert max(len(one.properties["bucket"]) for one in unusual().of_type(tokens.BUCKET)) <= 63
    mirrors = unusual().of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    assert max(len(one.properties["ecrRepositoryPrefix"]) for one in mirrors) <= 30


@every_environment
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_bucket_is_closed_to_the_public_and_knows_no_acls(environment: str, bucket: str) -> None:
    block = part(environment, tokens.BUCKET_PUBLIC_ACCESS, bucket)
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [block[switch] for switch in switches] == [True] * 4
    assert part(environment, tokens.BUCKET_OWNERSHIP, bucket)["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_bucket_refuses_everybody_without_modern_tls(bucket: str) -> None:
    refused = statements("prod", tokens.BUCKET_POLICY, bucket)
    for sid, condition in (
        ("TlsOnly", {"Bool": {"aws:SecureTransport": "false"}}),
        ("NoOldTls", {"NumericLessThan": {"s3:TlsVersion": "1.2"}}),
    ):
        statement = refused[sid]
        assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", ["s3:*"])
        assert statement["Condition"] == condition
        assert len(statement["Resource"]) == 2


@pytest.mark.parametrize("bucket", ["checkpoints", "artifacts"])
def test_data_is_encrypted_with_the_storage_key(bucket: str) -> None:
    recording = graph("prod")
    found = recording.find(tokens.BUCKET_ENCRYPTION, bucket)
    (rule,) = found.properties["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    assert rule["bucketKeyEnabled"] is True
    assert recording.find(tokens.KEY, "storage").urn in found.property_dependencies["rules"]


def test_the_access_log_is_encrypted_as_s3s_log_delivery_can() -> None:
    (rule,) = part("prod", tokens.BUCKET_ENCRYPTION, "logs")["rules"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "AES256"}


def test_only_s3_writes_access_logs_and_for_this_account_only() -> None:
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
def test_overwritten_checkpoints_can_be_brought_back_for_the_days_asked_for(environment: str) -> None:
    storage = settings_of(environment).storage
    assert part(environment, tokens.BUCKET_VERSIONING, "checkpoints")["versioningConfiguration"]["status"] == "Enabled"
    (rule,) = part(environment, tokens.BUCKET_LIFECYCLE, "checkpoints")["rules"]
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": storage.noncurrent_days}
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": storage.abort_upload_days}
    assert rule["transitions"] == [{"days": storage.infrequent_access_days, "storageClass": "STANDARD_IA"}]
    assert rule["expiration"] == {"expiredObjectDeleteMarker": True}


def test_checkpoints_stay_in_standard_storage_where_the_settings_say_never() -> None:
    (rule,) = unusual().find(tokens.BUCKET_LIFECYCLE, "checkpoints").properties["rules"]
    assert "transitions" not in rule


def test_access_logs_end_and_checkpoints_do_not() -> None:
    (logs,) = part("prod", tokens.BUCKET_LIFECYCLE, "logs")["rules"]
    assert logs["expiration"] == {"days": 90}


@every_environment
def test_only_a_test_clusters_stores_are_emptied(environment: str) -> None:
    recording = graph(environment)
    flags = {one.properties["forceDestroy"] for one in recording.of_type(tokens.BUCKET)}
    flags |= {one.properties["forceDelete"] for one in recording.of_type(tokens.REPOSITORY)}
    assert flags == {environment == "test"}


@every_environment
def test_the_file_system_is_mounted_in_every_zone_and_encrypted(environment: str) -> None:
    recording = graph(environment)
    targets = {one.name for one in recording.of_type("aws:efs/mountTarget:MountTarget")}
    assert targets == set(settings_of(environment).network.availability_zones)
    file_system = recording.find(tokens.FILE_SYSTEM, "datasets")
    assert file_system.properties["encrypted"] is True
    assert file_system.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "storage").urn,)


def test_the_file_system_refuses_plain_mounts_root_and_by_its_policy_being_there_the_anonymous() -> None:
    refused = statements("prod", tokens.FILE_SYSTEM_POLICY, "datasets")
    assert {one["Effect"] for one in refused.values()} == {"Deny"}
    assert refused["TlsOnly"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert refused["NoRoot"]["Action"] == ["elasticfilesystem:ClientRootAccess"]


def test_everything_below_the_access_points_belongs_to_the_trainers_user() -> None:
    points = unusual().of_type(ACCESS_POINT)
    assert len(points) == 2
    for point in points:
        assert point.properties["posixUser"] == {"uid": 1234, "gid": 1234}
        creation = point.properties["rootDirectory"]["creationInfo"]
        assert (creation["ownerUid"], creation["ownerGid"]) == (1234, 1234)


@every_environment
def test_no_access_point_sees_into_the_directory_of_another(environment: str) -> None:
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


def test_a_team_may_be_called_as_the_datasets_are() -> None:
    recording = varied({"teams": [{"name": "datasets"}]})
    assert {one.name for one in recording.of_type(ACCESS_POINT)} == {"datasets", "team-datasets"}


def test_a_team_can_leave_and_the_datasets_cannot() -> None:
    guarded = {one.name for one in graph("prod").of_type(ACCESS_POINT) if one.protect or one.retain_on_delete}
    assert guarded == {"datasets"}


@every_environment
def test_backups_are_kept_where_the_environment_keeps_any(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    backup = part(environment, tokens.FILE_SYSTEM_BACKUP, "datasets")["backupPolicy"]
    assert backup == {"status": "ENABLED" if wanted.backup_days else "DISABLED"}
    assert part(environment, tokens.DATABASE, "mlflow")["backupRetentionPeriod"] == wanted.backup_days


@every_environment
def test_the_database_is_guarded_as_its_environment_demands(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    database = part(environment, tokens.DATABASE, "mlflow")
    assert database["deletionProtection"] is wanted.deletion_protection
    assert database["skipFinalSnapshot"] is not wanted.final_snapshot
    assert ("finalSnapshotIdentifier" in database) is wanted.final_snapshot
    assert database["multiAz"] is settings_of(environment).database.multi_az


@every_environment
def test_the_database_is_private_encrypted_and_speaks_tls_only(environment: str) -> None:
    recording = graph(environment)
    database = recording.find(tokens.DATABASE, "mlflow")
    assert database.properties["publiclyAccessible"] is False
    assert database.properties["storageEncrypted"] is True
    assert database.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "database").urn,)
    parameters = recording.find(tokens.DATABASE_PARAMETERS, "mlflow")
    assert database.property_dependencies["parameterGroupName"] == (parameters.urn,)
    assert ("rds.force_ssl", "1") in {(one["name"], one["value"]) for one in parameters.properties["parameters"]}


def test_no_program_ever_knows_the_databases_password() -> None:
    database = part("prod", tokens.DATABASE, "mlflow")
    assert database["manageMasterUserPassword"] is True
    assert "password" not in database


def test_the_parameter_group_is_of_the_databases_major() -> None:
    assert unusual().find(tokens.DATABASE_PARAMETERS, "mlflow").properties["family"] == "postgres16"
    assert unusual().find(tokens.DATABASE, "mlflow").properties["engineVersion"] == "16"


def test_the_databases_logs_have_an_end_before_the_first_line_is_written() -> None:
    recording = graph("prod")
    database = recording.find(tokens.DATABASE, "mlflow")
    for log in database.properties["enabledCloudwatchLogsExports"]:
        group = recording.find(tokens.LOG_GROUP, f"database-{log}")
        assert group.properties["name"] == f"/aws/rds/instance/{database.properties['identifier']}/{log}"
        assert group.urn in database.dependencies


@every_environment
def test_every_image_of_ours_has_a_repository_with_tags_that_stay(environment: str) -> None:
    ours = {name for name, image in load_release().images.items() if image.is_ours}
    repositories = graph(environment).of_type(tokens.REPOSITORY)
    assert {one.name for one in repositories} == ours == set(graph(environment).outputs["registries"])
    for one in repositories:
        assert one.properties["imageTagMutability"] == "IMMUTABLE"
        assert one.properties["imageScanningConfiguration"] == {"scanOnPush": True}
        assert one.properties["encryptionConfigurations"][0]["encryptionType"] == "KMS"


def test_a_reference_of_the_release_points_into_the_stacks_own_repositories() -> None:
    urls = graph("prod").outputs["registries"]
    image = load_release().images["trainer"]
    registry = urls["trainer"].removesuffix(f"/{image.repository}")
    assert image.reference(registry).startswith(urls["trainer"])


def test_images_go_by_age_without_a_tag_and_by_number_with_one() -> None:
    policy = json.loads(part("prod", "aws:ecr/lifecyclePolicy:LifecyclePolicy", "trainer")["policy"])
    registry = settings_of("prod").registry
    untagged, rest = policy["rules"]
    assert (untagged["selection"]["tagStatus"], untagged["selection"]["countNumber"]) == (
        "untagged",
        registry.untagged_days,
    )
    assert rest["selection"]["countNumber"] == registry.keep_images
    assert untagged["rulePriority"] < rest["rulePriority"]


def test_public_registries_are_mirrored_where_asked_for_under_the_stacks_own_prefix() -> None:
    rules = graph("prod").of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    found = {one.properties["upstreamRegistryUrl"]: one.properties["ecrRepositoryPrefix"] for one in rules}
    assert found == {one: pull_through_prefix("rtp-prod", one) for one in settings_of("prod").registry.pull_through}
    assert graph("dev").of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule") == ()


@every_environment
def test_every_key_rotates_and_waits_before_it_goes(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind)
    for key in graph(environment).of_type(tokens.KEY):
        assert key.properties["enableKeyRotation"] is True
        assert key.properties["deletionWindowInDays"] == wanted.kms_deletion_days


@every_environment
def test_every_log_group_is_encrypted_with_the_key_that_admits_cloudwatch(environment: str) -> None:
    recording = graph(environment)
    key = recording.find(tokens.KEY, "logs")
    patterns = statements(environment, tokens.KEY, "logs")["CloudWatchLogs"]["Condition"]["ArnLike"][
        "kms:EncryptionContext:aws:logs:arn"
    ]
    beginnings = [pattern.partition(":log-group:")[2].removesuffix("*") for pattern in patterns]
    for group in recording.of_type(tokens.LOG_GROUP):
        assert group.property_dependencies["kmsKeyId"] == (key.urn,)
        assert group.properties["name"].startswith(tuple(beginnings))
