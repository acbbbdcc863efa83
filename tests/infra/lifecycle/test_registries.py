"""Looking up charts and images over HTTP, and AMIs and add-ons at AWS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.lifecycle.aws import Client
from infra.lifecycle.registries import Answer, AwsSource, ChartAnswer, Registries
from infra.spec.errors import NotFoundError
from tests.infra.lifecycle.servers import IMAGE_INDEX, Site, served

HASH = "a" * 64
INDEX = f"""
apiVersion: v1
entries:
  operator:
    - {{ version: 1.7.0, digest: {HASH} }}
    - {{ version: 1.10.0, digest: "sha256:{"b" * 64}" }}
    - {{ version: 2.0.0-rc.1, digest: {"c" * 64} }}
    - {{ version: v0.9.0, digest: {"d" * 64} }}
    - {{ version: 0.8.0 }}
"""


@pytest.fixture
def site() -> Iterator[Site]:
    """An empty site."""
    with served() as one:
        one.add_index(INDEX)
        yield one


def registries(site: Site) -> Registries:
    """Registries that access the site without TLS."""
    return Registries(plain_hosts=[site.host], timeout_s=5)


def test_the_hash_of_a_chart_is_the_one_in_the_index(site: Site) -> None:
    url = f"http://{site.host}/charts"
    assert registries(site).chart(url, "operator", "1.7.0") == ChartAnswer("1.7.0", HASH, f"{url}/index.yaml")


def test_the_newest_release_is_the_highest_version_without_prereleases(site: Site) -> None:
    assert registries(site).chart(f"http://{site.host}/charts", "operator", None)[:2] == ("1.10.0", "b" * 64)


def test_a_version_is_found_under_its_tag_with_a_v(site: Site) -> None:
    assert registries(site).chart(f"http://{site.host}/charts/", "operator", "0.9.0").sha256 == "d" * 64


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("operator", "9.9.9", "no digest of chart operator 9.9.9"),
        ("operator", "0.8.0", "no digest of chart operator 0.8.0"),
        ("other", None, "no release of chart other"),
    ],
)
def test_a_missing_chart_is_named(site: Site, name: str, version: str | None, message: str) -> None:
    with pytest.raises(NotFoundError, match=message):
        registries(site).chart(f"http://{site.host}/charts", name, version)


def test_the_hash_of_a_chart_in_a_registry_is_that_of_its_archive_layer(site: Site) -> None:
    site.add_chart("kueue/charts/kueue", "0.19.2", f"sha256:{HASH}")
    answer = registries(site).chart(f"oci://{site.host}/kueue/charts", "kueue", "0.19.2")
    assert answer[:2] == ("0.19.2", HASH)


def test_the_newest_chart_in_a_registry_is_the_newest_of_its_tags(site: Site) -> None:
    site.add_chart("charts/x", "0.20.0", f"sha256:{HASH}")
    site.pages["/v2/charts/x/tags/list"] = (b'{"tags": ["0.9.0", "0.20.0", "main", "0.21.0-rc1"]}', "application/json")
    assert registries(site).chart(f"oci://{site.host}/charts", "x", None).version == "0.20.0"


def test_an_image_is_not_a_chart(site: Site) -> None:
    site.add_manifest("charts/x", "1.0.0", {"mediaType": IMAGE_INDEX, "manifests": []})
    with pytest.raises(NotFoundError, match="is not a Helm chart"):
        registries(site).chart(f"oci://{site.host}/charts", "x", "1.0.0")


def test_the_digest_of_an_image_is_computed_from_its_manifest(site: Site) -> None:
    digest = site.add_manifest("kuberay/operator", "v1.7.0", {"mediaType": IMAGE_INDEX, "manifests": []})
    assert registries(site).digest(f"{site.host}/kuberay/operator", "v1.7.0").value == digest


def test_a_wrong_digest_header_is_refused(site: Site) -> None:
    site.add_manifest("x", "1", {"mediaType": IMAGE_INDEX})
    site.headers["/v2/x/manifests/1"] = {"Docker-Content-Digest": f"sha256:{HASH}"}
    with pytest.raises(NotFoundError, match="Docker-Content-Digest is sha256:aaaa"):
        registries(site).digest(f"{site.host}/x", "1")


def test_a_bearer_challenge_gets_an_anonymous_token(site: Site) -> None:
    site.needs_token = True
    digest = site.add_manifest("x", "1", {"mediaType": IMAGE_INDEX})
    assert registries(site).digest(f"{site.host}/x", "1").value == digest
    assert site.requests[1] == "/token?service=registry&scope=repository%3Ax%3Apull"


def test_a_missing_image_is_named_with_the_status(site: Site) -> None:
    with pytest.raises(NotFoundError, match=r"/v2/x/manifests/2: HTTP status 404"):
        registries(site).digest(f"{site.host}/x", "2")


def test_an_unreachable_registry_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"127\.0\.0\.1"):
        Registries(plain_hosts=["127.0.0.1:1"], timeout_s=1).digest("127.0.0.1:1/x", "1")


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
    """One version of an add-on, in the form of the EKS API."""
    compatibility = {"clusterVersion": kubernetes, "defaultVersion": is_default}
    return {"addonVersion": version, "compatibilities": [compatibility]}


def addon_source(*versions: dict[str, Any]) -> AwsSource:
    """A source with these versions of the add-on coredns."""
    eks = client("eks")
    stub = Stubber(eks)
    stub.add_response(
        "describe_addon_versions",
        {"addons": [{"addonName": "coredns", "addonVersions": list(versions)}]},
        {"addonName": "coredns", "kubernetesVersion": "1.35"},
    )
    stub.activate()
    return AwsSource(ssm=client("ssm"), eks=eks)


def test_the_version_of_an_addon_is_the_default_for_the_minor() -> None:
    source = addon_source(addon("v2", "1.35", is_default=False), addon("v1", "1.35", is_default=True))
    assert source.version("coredns", "1.35").value == "v1"


def test_an_addon_without_a_default_for_the_minor_is_named() -> None:
    source = addon_source(addon("v2", "1.34", is_default=True))
    with pytest.raises(NotFoundError, match=r"no default version of add-on coredns for Kubernetes 1\.35"):
        source.version("coredns", "1.35")
