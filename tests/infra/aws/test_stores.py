"""Buckets, file system, database and repositories, as far as they depend on the settings."""

from __future__ import annotations

import json
import re

from infra.aws.registry import pull_through_prefix
from infra.policy import tokens
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, unusual, varied

ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"


RESERVED_BUCKETS = re.compile(r"xn--|sthree-|amzn-s3-demo-|.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$")
"""Beginnings and ends that S3 keeps for itself (S3 user guide, "General purpose bucket naming rules")."""

REPOSITORY = r"[a-z0-9]+([._-][a-z0-9]+)*"
NAMES = {
    ("aws:budgets/budget:Budget", "name"): r"[^:\\]{1,100}",
    ("aws:cloudwatch/logGroup:LogGroup", "name"): r"(?!aws/)[\w.#/-]{1,512}",
    (
        "aws:ecr/pullThroughCacheRule:PullThroughCacheRule",
        "ecrRepositoryPrefix",
    ): rf"(?=.{{2,30}}$){REPOSITORY}(/{REPOSITORY})*",
    ("aws:ecr/repository:Repository", "name"): rf"(?=.{{2,256}}$){REPOSITORY}(/{REPOSITORY})*",
    ("aws:eks/cluster:Cluster", "name"): r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    ("aws:kms/alias:Alias", "name"): r"alias/(?!aws/)[\w/-]{1,250}",
    ("aws:rds/instance:Instance", "dbName"): r"[A-Za-z][A-Za-z0-9_]{0,62}",
    ("aws:rds/instance:Instance", "finalSnapshotIdentifier"): r"(?!.*--)[A-Za-z][A-Za-z0-9-]{0,253}[A-Za-z0-9]",
    ("aws:rds/instance:Instance", "identifier"): r"(?!.*--)[a-z][a-z0-9-]{0,61}[a-z0-9]",
    ("aws:rds/instance:Instance", "username"): r"(?!postgres$|rdsadmin$|admin$)[A-Za-z][A-Za-z0-9_]{0,62}",
    (tokens.BUCKET, "bucket"): rf"(?!{RESERVED_BUCKETS.pattern})[a-z0-9][a-z0-9-]{{1,61}}[a-z0-9]",
    ("aws:sns/topic:Topic", "name"): r"[\w-]{1,256}",
}
"""What AWS accepts as a name, by type and property (API references: the patterns and lengths of the parameters)."""

GENERATED = {
    "aws:ec2/launchTemplate:LaunchTemplate": r"[\w().\-/]{3,128}",
    "aws:eks/nodeGroup:NodeGroup": r"[A-Za-z0-9][\w-]{0,62}",
    "aws:iam/role:Role": r"[\w+=,.@-]{1,64}",
    "aws:rds/parameterGroup:ParameterGroup": r"(?!.*--)[A-Za-z][A-Za-z0-9-]{0,253}[A-Za-z0-9]",
    "aws:rds/subnetGroup:SubnetGroup": r"(?!default$)[a-z0-9._ -]{1,255}",
}
"""The same of names that Pulumi makes of the resource's own, a hyphen and seven hexadecimal digits."""


def test_names_are_what_aws_accepts_also_for_the_longest_settings() -> None:
    longest = varied({"environment.name": "a" * 20, "teams": [{"name": "t" * 63}], "gpu_groups.0.name": "g" * 30})
    for recording in (unusual(), longest, *map(graph, ENVIRONMENTS)):
        names = [
            (one.type, key, one.properties[key])
            for one in recording.resources
            for key in {key for _, key in NAMES}
            if one.type.startswith("aws:")
            and one.properties.get(key)
            and (key != "bucket" or one.type == tokens.BUCKET)
        ]
        assert [each for each in names if not re.fullmatch(NAMES[each[:2]], each[2])] == []
        generated = [(one.type, f"{one.name}-0123456") for one in recording.resources if one.type in GENERATED]
        assert [each for each in generated if not re.fullmatch(GENERATED[each[0]], each[1])] == []


def test_a_repository_prefix_follows_the_registry() -> None:
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
