"""Every policy statement of the stack, and every trust policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import boto3
import botocore.session
import pytest
from moto import mock_aws

from infra.aws.iam import AWS_MANAGED_POLICIES
from infra.policy import tokens
from infra.policy.rules.iam import ACTIONS_WITHOUT_RESOURCE_TYPE
from tests.infra.aws.graphs import ACCOUNT, ENVIRONMENTS, graph, sample, settings_of, varied

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"


class PolicyStatement(NamedTuple):
    """One statement, and its role and Sid as `place`."""

    place: str
    body: dict[str, Any]


def statements(environment: str, type_: str, prop: str = "policy") -> Iterator[PolicyStatement]:
    for one in graph(environment).of_type(type_):
        for body in json.loads(one.properties[prop])["Statement"]:
            yield PolicyStatement(f"{one.name}/{body['Sid']}", body)


def permissions(role: str, environment: str = "prod") -> dict[str, dict[str, Any]]:
    document = graph(environment).find(tokens.ROLE_POLICY, role).properties["policy"]
    return {body["Sid"]: body for body in json.loads(document)["Statement"]}


@every_environment
def test_no_role_has_wildcard_actions(environment: str) -> None:
    patterns = [
        (place, action)
        for place, body in statements(environment, tokens.ROLE_POLICY)
        for action in body["Action"]
        if "*" in action
    ]
    assert patterns == []


@every_environment
def test_only_actions_without_resource_types_have_a_wildcard_resource(environment: str) -> None:
    unbound = {
        place: sorted(set(body["Action"]) - ACTIONS_WITHOUT_RESOURCE_TYPE)
        for place, body in statements(environment, tokens.ROLE_POLICY)
        if "*" in body["Resource"] and not set(body["Action"]) <= ACTIONS_WITHOUT_RESOURCE_TYPE
    }
    assert unbound == {}


@every_environment
def test_a_resource_pattern_is_limited_to_the_cluster(environment: str) -> None:
    cluster = graph(environment).outputs["cluster"]["name"]
    for place, body in statements(environment, tokens.ROLE_POLICY):
        for arn in set(body["Resource"]) - {"*"}:
            head, star, _ = arn.replace("${aws:PrincipalTag/kubernetes-namespace}", "*").partition("*")
            bound = cluster in head or cluster in json.dumps(body.get("Condition", {}))
            assert bound or not star, f"{place}: {arn}"


def test_prod_has_only_these_resource_patterns() -> None:
    found = {
        place
        for place, body in statements("prod", tokens.ROLE_POLICY)
        if any(sign in arn for arn in body["Resource"] for sign in "*?") and "*" not in body["Resource"]
    }
    assert found == {
        "flow-logs/WriteFlowLogs",  # streams of its log group
        "node/MirrorAtFirstPull",  # pull-through caches with the cluster's prefix
        "trainer/CheckpointsOfTheTeam",  # objects with the team's prefix
        "mlflow/Artifacts",  # objects of its folder
        "mlflow-backup/ReadArtifactsAndBackups",  # objects of the same folder, and of that of backups
        "mlflow-backup/WriteBackups",
        "autoscaler/LookAtNodeGroups",  # node groups of its cluster
        "autoscaler/MoveOwnGroups",  # Auto Scaling groups with its cluster's tag
        "logs/ShipLogs",  # streams of its log group
        "monitoring/AlertWebhook",  # six characters that Secrets Manager appends
    }


@every_environment
def test_no_role_has_iam_sts_or_organizations_actions(environment: str) -> None:
    actions = {action for _, body in statements(environment, tokens.ROLE_POLICY) for action in body["Action"]}
    assert not any(action.startswith(("iam:", "sts:", "organizations:")) for action in actions)


@every_environment
def test_every_role_trusts_a_service_with_a_condition(environment: str) -> None:
    for place, body in statements(environment, tokens.ROLE, "assumeRolePolicy"):
        assert list(body["Principal"]) == ["Service"], place
        if body["Principal"]["Service"] != "ec2.amazonaws.com":
            (narrowed,) = body["Condition"].values()
            assert set(narrowed) & {"aws:SourceAccount", "aws:RequestTag/eks-cluster-arn"}, place


@every_environment
def test_pods_assume_their_role_only_with_their_cluster_namespace_and_service_account(environment: str) -> None:
    recording = graph(environment)
    trusts = {place.partition("/")[0]: body for place, body in statements(environment, tokens.ROLE, "assumeRolePolicy")}
    for association in recording.of_type(ASSOCIATION):
        (urn,) = association.property_dependencies["roleArn"]
        trust = trusts[urn.rpartition("::")[2]]["Condition"]["StringEquals"]
        assert trust["aws:RequestTag/eks-cluster-arn"].endswith(f":cluster/{recording.outputs['cluster']['name']}")
        assert association.properties["namespace"] in trust["aws:RequestTag/kubernetes-namespace"]
        assert association.properties["serviceAccount"] in trust["aws:RequestTag/kubernetes-service-account"]


@every_environment
def test_every_attached_managed_policy_is_on_the_list(environment: str) -> None:
    attached = [one.properties["policyArn"] for one in graph(environment).of_type(tokens.ROLE_ATTACHMENT)]
    assert {arn.removeprefix("arn:aws:iam::aws:policy/") for arn in attached} == set(AWS_MANAGED_POLICIES)


@every_environment
def test_every_statement_has_a_unique_sid(environment: str) -> None:
    for type_, prop in (
        (tokens.ROLE_POLICY, "policy"),
        (tokens.ROLE, "assumeRolePolicy"),
        (tokens.KEY, "policy"),
        (tokens.BUCKET_POLICY, "policy"),
        (tokens.FILE_SYSTEM_POLICY, "policy"),
    ):
        places = [place for place, _ in statements(environment, type_, prop)]
        assert len(places) == len(set(places)) > 0


@every_environment
def test_a_statement_that_allows_every_principal_has_a_condition_on_it(environment: str) -> None:
    for type_ in (tokens.KEY, tokens.BUCKET_POLICY, tokens.FILE_SYSTEM_POLICY):
        for place, body in statements(environment, type_):
            if body["Effect"] == "Allow" and body["Principal"] == "*":
                assert "aws:PrincipalArn" in body["Condition"]["ArnEquals"], place


@every_environment
def test_only_the_account_statement_of_a_key_has_wildcard_actions(environment: str) -> None:
    keys = graph(environment).of_type(tokens.KEY)
    by_pattern = [
        place for place, body in statements(environment, tokens.KEY) if any("*" in action for action in body["Action"])
    ]
    assert sorted(by_pattern) == sorted(f"{key.name}/AccountByIam" for key in keys)


def test_the_volume_key_allows_auto_scaling_before_its_service_linked_role_exists() -> None:
    allowed = dict(statements("prod", tokens.KEY))
    for place in ("volumes/AutoScalingUses", "volumes/AutoScalingLendsToEbs"):
        assert allowed[place]["Principal"] == "*"
        role = allowed[place]["Condition"]["ArnEquals"]["aws:PrincipalArn"]
        assert role.endswith(":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling")
    assert allowed["volumes/AutoScalingLendsToEbs"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_a_teams_jobs_may_access_only_their_namespaces_checkpoints() -> None:
    allowed = permissions("trainer")
    (arn,) = allowed["CheckpointsOfTheTeam"]["Resource"]
    assert arn == "arn:aws:s3:::rtp-prod-checkpoints-777788889999/${aws:PrincipalTag/kubernetes-namespace}/*"
    assert allowed["ListOfTheTeam"]["Condition"] == {
        "StringLike": {"s3:prefix": ["${aws:PrincipalTag/kubernetes-namespace}/*"]}
    }
    assert {"CheckpointsOfTheTeam", "ListOfTheTeam", "KeyOfTheBucket"} == set(allowed)


def test_mlflow_may_access_its_artifacts_and_password_but_no_checkpoints() -> None:
    reached = {arn for body in permissions("mlflow").values() for arn in body["Resource"]}
    assert not any("checkpoints" in arn for arn in reached)
    assert any(arn.startswith("arn:aws:secretsmanager:us-east-1:777788889999:secret:rds!db-") for arn in reached)


def test_mlflow_writes_artifacts_and_neither_reads_nor_writes_backups() -> None:
    bucket = "arn:aws:s3:::rtp-prod-artifacts-777788889999"
    objects = [body for body in permissions("mlflow").values() if any("Object" in action for action in body["Action"])]
    assert [body["Resource"] for body in objects] == [[f"{bucket}/mlflow/*"]]


def test_backups_read_artifacts_and_write_backups_and_delete_nothing() -> None:
    bucket, allowed = "arn:aws:s3:::rtp-prod-artifacts-777788889999", permissions("mlflow-backup")
    assert allowed["WriteBackups"]["Resource"] == [f"{bucket}/backups/*"]
    assert allowed["ReadArtifactsAndBackups"]["Resource"] == [f"{bucket}/mlflow/*", f"{bucket}/backups/*"]
    assert allowed["ReadArtifactsAndBackups"]["Action"] == ["s3:GetObject", "s3:GetObjectVersion"]
    actions = {action for body in allowed.values() for action in body["Action"]}
    assert not any("Delete" in action for action in actions)
    assert {sid for sid, body in allowed.items() if bucket in body["Resource"]} == {"ListVersions"}
    (association,) = [
        one for one in graph("prod").of_type(ASSOCIATION) if one.properties["serviceAccount"] == "mlflow-backup"
    ]
    assert association.properties["namespace"] == "mlflow"


@pytest.mark.parametrize(("role", "service"), [("trainer", "s3"), ("mlflow", "s3")])
def test_a_key_may_only_be_used_via_its_service(role: str, service: str) -> None:
    statement = permissions(role)["KeyOfTheBucket"]
    assert statement["Condition"] == {"StringEquals": {"kms:ViaService": f"{service}.us-east-1.amazonaws.com"}}


def test_the_autoscaler_may_scale_only_its_own_clusters_groups() -> None:
    statement = permissions("autoscaler")["MoveOwnGroups"]
    assert statement["Condition"] == {"StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/rtp-prod": "owned"}}


def test_the_file_system_may_be_mounted_only_via_access_points_and_never_as_root() -> None:
    statement = permissions("efs-csi")["MountByAccessPoint"]
    assert "elasticfilesystem:ClientRootAccess" not in statement["Action"]
    points = graph("prod").of_type("aws:efs/accessPoint:AccessPoint")
    allowed = statement["Condition"]["StringEquals"]["elasticfilesystem:AccessPointArn"]
    assert len(allowed) == len(set(allowed)) == len(points) == 1 + len(settings_of("prod").teams)
    assert allowed[0].endswith(f":access-point/{graph('prod').outputs['storage']['efs_access_point']}")
    assert set(allowed) < set(permissions("efs-csi")["FindAccessPoints"]["Resource"])


def test_monitoring_may_only_publish_alerts_and_read_the_webhook() -> None:
    assert set(permissions("monitoring")) == {"MailAlerts", "AlertWebhook"}
    assert "monitoring" not in {one.name for one in graph("dev").of_type(tokens.ROLE_POLICY)}


def test_the_log_shipper_may_only_write_streams_of_its_group() -> None:
    assert permissions("logs") == {
        "ShipLogs": {
            "Sid": "ShipLogs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": ["arn:aws:logs:us-east-1:777788889999:log-group:/rtp/rtp-prod/containers:*"],
        }
    }


def test_a_node_may_create_only_pull_through_cache_repositories() -> None:
    assert permissions("node") == {
        "MirrorAtFirstPull": {
            "Sid": "MirrorAtFirstPull",
            "Effect": "Allow",
            "Action": ["ecr:CreateRepository"],
            "Resource": [
                f"arn:aws:ecr:us-east-1:777788889999:repository/rtp-prod/{cache}/*" for cache in ("quay", "k8s")
            ],
        }
    }
    assert "node" not in {one.name for one in sample().of_type(tokens.ROLE_POLICY)}


@cache
def operations(service: str) -> frozenset[str]:
    return frozenset(botocore.session.get_session().get_service_model(service).operation_names)


@every_environment
def test_every_action_exists(environment: str) -> None:
    """Checks services whose actions are named like their operations; S3, KMS and EFS differ."""
    checked = {"autoscaling", "ec2", "ecr", "eks", "logs", "secretsmanager", "sns"}
    actions = {action for _, body in statements(environment, tokens.ROLE_POLICY) for action in body["Action"]}
    pairs = [action.split(":") for action in actions]
    unknown = [f"{one}:{name}" for one, name in pairs if one in checked and name not in operations(one)]
    assert unknown == []
    assert {one for one, _ in pairs} - checked == {"s3", "kms", "elasticfilesystem"}


def test_iam_accepts_every_policy_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCOUNT)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCOUNT)
    roles, policies = graph("prod").of_type(tokens.ROLE), graph("prod").of_type(tokens.ROLE_POLICY)
    with mock_aws():
        iam = boto3.client("iam", region_name="us-east-1")
        for role in roles:
            iam.create_role(RoleName=role.name, AssumeRolePolicyDocument=role.properties["assumeRolePolicy"])
        for policy in policies:
            iam.create_policy(PolicyName=policy.name, PolicyDocument=policy.properties["policy"])
        assert len(iam.list_policies(Scope="Local")["Policies"]) == len(policies)


def test_copies_of_datasets_may_only_read_the_buckets_in_the_settings() -> None:
    recording = varied({"storage": {"dataset_sources": ["corpus", "other-account.data"]}})
    document = json.loads(recording.find(tokens.ROLE_POLICY, "data-sync").properties["policy"])
    allowed = {body["Sid"]: body for body in document["Statement"]}
    buckets = ["arn:aws:s3:::corpus", "arn:aws:s3:::other-account.data"]
    objects = [f"{bucket}/*" for bucket in buckets]
    assert (allowed["ListSources"]["Action"], allowed["ListSources"]["Resource"]) == (["s3:ListBucket"], buckets)
    assert (allowed["ReadSources"]["Action"], allowed["ReadSources"]["Resource"]) == (["s3:GetObject"], objects)
    key = allowed["KeysOfSources"]
    assert key["Action"] == ["kms:Decrypt"]
    assert key["Condition"]["StringLike"]["kms:EncryptionContext:aws:s3:arn"] == [*buckets, *objects]
    (association,) = [one for one in recording.of_type(ASSOCIATION) if one.properties["namespace"] == "data-sync"]
    assert association.properties["serviceAccount"] == "data-sync"


@every_environment
def test_without_sources_there_is_no_role_for_copies(environment: str) -> None:
    assert "data-sync" not in {one.name for one in graph(environment).of_type(tokens.ROLE)}


def reads_of_teams(*teams: dict[str, Any]) -> dict[str, dict[str, Any]]:
    recording = varied({"teams": [{"gpus": {}, **team} for team in teams]})
    document = json.loads(recording.find(tokens.ROLE_POLICY, "trainer").properties["policy"])
    return {body["Sid"]: body for body in document["Statement"] if "Datasets" in body["Sid"]}


def test_the_jobs_of_a_team_read_the_buckets_in_its_settings_and_no_other_team_does() -> None:
    folder = "other-account.data/images/v2"
    allowed = reads_of_teams({"name": "vision", "dataset_buckets": ["corpus", folder]}, {"name": "speech"})
    objects = ["arn:aws:s3:::corpus/*", f"arn:aws:s3:::{folder}/*"]
    of_the_team = {"aws:PrincipalTag/kubernetes-namespace": "vision"}
    assert {sid: body["Action"] for sid, body in allowed.items()} == {
        "ListDatasets0": ["s3:ListBucket"],
        "ListDatasets1": ["s3:ListBucket"],
        "ReadDatasets0": ["s3:GetObject"],
        "KeysOfDatasets0": ["kms:Decrypt"],
    }
    assert all(body["Condition"]["StringEquals"] == of_the_team for body in allowed.values())
    assert allowed["ReadDatasets0"]["Resource"] == objects
    assert allowed["ListDatasets0"]["Resource"] == ["arn:aws:s3:::corpus"]
    assert "StringLike" not in allowed["ListDatasets0"]["Condition"]
    assert allowed["ListDatasets1"]["Resource"] == ["arn:aws:s3:::other-account.data"]
    assert allowed["ListDatasets1"]["Condition"]["StringLike"] == {"s3:prefix": ["images/v2/*"]}
    key = allowed["KeysOfDatasets0"]["Condition"]["StringLike"]
    buckets = ["arn:aws:s3:::corpus", "arn:aws:s3:::other-account.data"]
    assert key == {"kms:ViaService": "s3.*.amazonaws.com", "kms:EncryptionContext:aws:s3:arn": [*buckets, *objects]}


def test_without_buckets_in_the_settings_jobs_read_no_datasets_from_s3() -> None:
    assert reads_of_teams({"name": "vision"}) == {}
