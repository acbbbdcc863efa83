"""What the rules of the policy pack do not say of roles, and the permissions that depend on the settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3
import botocore.session
import pytest
from moto import mock_aws

from infra.policy import tokens
from tests.infra.aws.graphs import ACCOUNT, ENVIRONMENTS, graph, varied

ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"


def statements(environment: str, type_: str, prop: str = "policy") -> Iterator[tuple[str, dict[str, Any]]]:
    """The statements of an environment's policies, each with its environment, role and Sid."""
    for one in graph(environment).of_type(type_):
        for body in json.loads(one.properties[prop])["Statement"]:
            yield f"{environment}: {one.name}/{body['Sid']}", body


def test_a_resource_pattern_is_limited_to_the_cluster_and_no_role_changes_identities() -> None:
    for environment in ENVIRONMENTS:
        cluster = graph(environment).outputs["cluster"]["name"]
        for place, body in statements(environment, tokens.ROLE_POLICY):
            assert not any(action.startswith(("iam:", "sts:", "organizations:")) for action in body["Action"]), place
            for arn in set(body["Resource"]) - {"*"}:
                head, star, _ = arn.replace("${aws:PrincipalTag/kubernetes-namespace}", "*").partition("*")
                bound = cluster in head or cluster in json.dumps(body.get("Condition", {}))
                assert bound or not star, f"{place}: {arn}"


def test_every_role_trusts_a_service_with_a_condition() -> None:
    for environment in ENVIRONMENTS:
        for place, body in statements(environment, tokens.ROLE, "assumeRolePolicy"):
            assert list(body["Principal"]) == ["Service"], place
            if body["Principal"]["Service"] != "ec2.amazonaws.com":
                (narrowed,) = body["Condition"].values()
                assert set(narrowed) & {"aws:SourceAccount", "aws:RequestTag/eks-cluster-arn"}, place


def test_pods_assume_their_role_only_with_their_cluster_namespace_and_service_account() -> None:
    for environment in ENVIRONMENTS:
        recording = graph(environment)
        for association in recording.of_type(ASSOCIATION):
            (urn,) = association.property_dependencies["roleArn"]
            role = recording.find(tokens.ROLE, urn.rpartition("::")[2])
            (trusted,) = json.loads(role.properties["assumeRolePolicy"])["Statement"]
            trust = trusted["Condition"]["StringEquals"]
            assert trust["aws:RequestTag/eks-cluster-arn"].endswith(f":cluster/{recording.outputs['cluster']['name']}")
            assert association.properties["namespace"] in trust["aws:RequestTag/kubernetes-namespace"]
            assert association.properties["serviceAccount"] in trust["aws:RequestTag/kubernetes-service-account"]


@cache
def operations(service: str) -> frozenset[str]:
    return frozenset(botocore.session.get_session().get_service_model(service).operation_names)


def test_every_action_exists() -> None:
    """Checks services whose actions are named like their operations; S3, KMS and EFS differ."""
    checked = {"autoscaling", "ec2", "ecr", "eks", "logs", "secretsmanager", "sns"}
    bodies = [body for environment in ENVIRONMENTS for _, body in statements(environment, tokens.ROLE_POLICY)]
    pairs = [action.split(":") for action in {action for body in bodies for action in body["Action"]}]
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
    assert reads_of_teams({"name": "vision"}) == {}
