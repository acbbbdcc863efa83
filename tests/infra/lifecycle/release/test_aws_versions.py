"""Looking up AMIs, add-ons and Kubernetes minors at AWS."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.lifecycle.account.aws import Client
from infra.lifecycle.release.aws_versions import AwsSource
from infra.lifecycle.release.registries import Answer
from infra.spec.errors import NoAnswerError, NotFoundError


def client(service: str) -> Client:
    """A client for botocore's stub: moto lacks EKS's public parameters and add-ons."""
    return boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


def test_the_ami_release_is_that_of_the_public_parameter() -> None:
    name = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/release_version"
    with Stubber(ssm := client("ssm")) as stub:
        stub.add_response("get_parameter", {"Parameter": {"Value": "1.35.2-20260101"}}, {"Name": name})
        answer = AwsSource(ssm=ssm, eks=client("eks")).release("1.35", "AL2023_x86_64_NVIDIA")
    assert answer == Answer("1.35.2-20260101", f"SSM {name}")


def test_an_ami_that_aws_does_not_publish_is_named() -> None:
    with mock_aws(), pytest.raises(NotFoundError, match=r"optimized-ami/1\.99/.*ParameterNotFound"):
        AwsSource(ssm=client("ssm"), eks=client("eks")).release("1.99", "AL2023_x86_64_STANDARD")


def addon(version: str, kubernetes: str, *, is_default: bool) -> dict[str, Any]:
    compatibility = {"clusterVersion": kubernetes, "defaultVersion": is_default}
    return {"addonVersion": version, "compatibilities": [compatibility]}


def addon_source(*versions: dict[str, Any]) -> AwsSource:
    eks = client("eks")
    stub = Stubber(eks)
    stub.add_response(
        "describe_addon_versions",
        {"addons": [{"addonName": "coredns", "addonVersions": list(versions)}]},
        {"addonName": "coredns", "kubernetesVersion": "1.35"},
    )
    stub.activate()
    return AwsSource(ssm=client("ssm"), eks=eks)


def test_the_version_of_an_addon_is_the_default_for_the_minor_and_every_compatible_one_is_listed() -> None:
    known = (addon("v2", "1.35", is_default=False), addon("v1", "1.35", is_default=True))
    assert addon_source(*known).version("coredns", "1.35").value == "v1"
    assert addon_source(*known).versions("coredns", "1.35") == ("v2", "v1")
    with pytest.raises(NotFoundError, match=r"no default version of add-on coredns for Kubernetes 1\.35"):
        addon_source(addon("v2", "1.34", is_default=True)).version("coredns", "1.35")


def test_an_ami_release_is_looked_up_by_its_date() -> None:
    name = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia"
    name += "/amazon-eks-node-al2023-x86_64-nvidia-1.35-v20260101/image_id"
    with Stubber(ssm := client("ssm")) as stub:
        stub.add_response("get_parameter", {"Parameter": {"Value": "ami-1"}}, {"Name": name})
        found = AwsSource(ssm=ssm, eks=client("eks")).published("1.35", "AL2023_x86_64_NVIDIA", "1.35.2-20260101")
    assert found == f"SSM {name}"


def test_minors_are_those_in_standard_support() -> None:
    with Stubber(eks := client("eks")) as stub:
        answer = {"clusterVersions": [{"clusterVersion": "1.36"}, {"clusterVersion": "1.35"}]}
        stub.add_response("describe_cluster_versions", answer, {"versionStatus": "STANDARD_SUPPORT"})
        assert AwsSource(ssm=client("ssm"), eks=eks).minors() == ("1.36", "1.35")
        stub.add_client_error("describe_cluster_versions", "AccessDeniedException")
        with pytest.raises(NoAnswerError, match="AccessDeniedException"):
            AwsSource(ssm=client("ssm"), eks=eks).minors()
