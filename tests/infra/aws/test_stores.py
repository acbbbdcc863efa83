"""Buckets, file system, database and repositories, as far as they depend on the settings."""

from __future__ import annotations

import json

from infra.aws.registry import pull_through_prefix
from infra.policy import tokens
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, unusual, varied

ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"


def test_the_longest_environment_name_gives_valid_physical_names() -> None:
    assert max(len(one.properties["bucket"]) for one in unusual().of_type(tokens.BUCKET)) <= 63
    rules = unusual().of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    prefixes = {one.properties["upstreamRegistryUrl"]: one.properties["ecrRepositoryPrefix"] for one in rules}
    upstreams = ("quay.io", "registry.k8s.io", "public.ecr.aws")
    assert prefixes == {one: pull_through_prefix(f"rtp-{'a' * 20}", one) for one in upstreams}
    assert max(map(len, prefixes.values())) <= 30


def test_the_transition_to_standard_ia_is_optional_and_backups_expire_before_their_artifacts() -> None:
    (rule,) = unusual().find(tokens.BUCKET_LIFECYCLE, "checkpoints").properties["rules"]
    assert "transitions" not in rule
    for environment in ENVIRONMENTS:
        rules = graph(environment).find(tokens.BUCKET_LIFECYCLE, "artifacts").properties["rules"]
        everything, backups = rules
        assert backups["filter"] == {"prefix": "backups/"}
        assert backups["expiration"]["days"] <= everything["noncurrentVersionExpiration"]["noncurrentDays"]


def test_access_points_enforce_the_configured_user() -> None:
    points = unusual().of_type(ACCESS_POINT)
    assert len(points) == 2
    for point in points:
        assert point.properties["posixUser"] == {"uid": 1234, "gid": 1234}
        creation = point.properties["rootDirectory"]["creationInfo"]
        assert (creation["ownerUid"], creation["ownerGid"]) == (1234, 1234)


def test_every_team_has_a_root_directory_also_one_that_is_called_datasets() -> None:
    points = varied({"teams": [{"name": "datasets"}]}).of_type(ACCESS_POINT)
    roots = {one.name: one.properties["rootDirectory"] for one in points}
    assert {name: (root["path"], root["creationInfo"]["permissions"]) for name, root in roots.items()} == {
        "datasets": ("/datasets", "0770"),
        "team-datasets": ("/teams/datasets", "0750"),
    }


def test_the_parameter_group_has_the_databases_major_version() -> None:
    assert unusual().find(tokens.DATABASE_PARAMETERS, "mlflow").properties["family"] == "postgres16"
    assert unusual().find(tokens.DATABASE, "mlflow").properties["engineVersion"] == "16"


def test_image_references_point_to_the_stacks_repositories() -> None:
    urls = graph("prod").outputs["registries"]
    image = load_release().images["trainer"]
    registry = urls["trainer"].removesuffix(f"/{image.repository}")
    assert image.reference(registry).startswith(urls["trainer"])


def test_every_log_group_has_a_name_that_the_key_of_the_logs_allows() -> None:
    for environment in ENVIRONMENTS:
        recording = graph(environment)
        key = recording.find(tokens.KEY, "logs")
        allowed = {one["Sid"]: one for one in json.loads(key.properties["policy"])["Statement"]}["CloudWatchLogs"]
        patterns = allowed["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]
        prefixes = tuple(pattern.partition(":log-group:")[2].removesuffix("*") for pattern in patterns)
        for group in recording.of_type(tokens.LOG_GROUP):
            assert group.property_dependencies["kmsKeyId"] == (key.urn,)
            assert group.properties["name"].startswith(prefixes), f"{environment}: {group.name}"
