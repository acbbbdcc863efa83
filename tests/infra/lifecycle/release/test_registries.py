"""Looking up charts and images over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.lifecycle.release.registries import ChartAnswer, ChartDetails, Registries, ecr_login
from infra.spec.errors import NoAnswerError, NotFoundError
from tests.infra.lifecycle.release.servers import IMAGE_INDEX, Site, served

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
    with served() as one:
        one.add_index(INDEX)
        yield one


def registries(site: Site) -> Registries:
    return Registries(plain_hosts=[site.host], timeout_s=60)


def test_the_hash_of_a_chart_is_the_one_in_the_index(site: Site) -> None:
    url = f"http://{site.host}/charts"
    assert registries(site).chart(url, "operator", "1.7.0") == ChartAnswer("1.7.0", HASH, f"{url}/index.yaml")
    newest = registries(site).chart(url, "operator", None)
    assert newest[:2] == ("1.10.0", "b" * 64), "the highest version without prereleases"
    assert registries(site).chart(f"{url}/", "operator", "0.9.0").sha256 == "d" * 64, "its tag has a v"


def test_a_missing_chart_is_named(site: Site) -> None:
    for name, version, message in (
        ("operator", "9.9.9", "no digest of chart operator 9.9.9"),
        ("operator", "0.8.0", "no digest of chart operator 0.8.0"),
        ("other", None, "no release of chart other"),
    ):
        with pytest.raises(NotFoundError, match=message):
            registries(site).chart(f"http://{site.host}/charts", name, version)


def test_the_hash_of_a_chart_in_a_registry_is_that_of_its_archive_layer_and_the_newest_of_its_tags(site: Site) -> None:
    site.add_chart("kueue/charts/kueue", "0.19.2", f"sha256:{HASH}")
    answer = registries(site).chart(f"oci://{site.host}/kueue/charts", "kueue", "0.19.2")
    assert answer[:2] == ("0.19.2", HASH)
    site.add_chart("charts/x", "0.20.0", f"sha256:{HASH}")
    site.add_tags("charts/x", "0.9.0", "0.20.0", "main", "0.21.0-rc1")
    assert registries(site).chart(f"oci://{site.host}/charts", "x", None).version == "0.20.0"
    site.add_manifest("charts/x", "1.0.0", {"mediaType": IMAGE_INDEX, "manifests": []})
    with pytest.raises(NotFoundError, match="is not a Helm chart"):
        registries(site).chart(f"oci://{site.host}/charts", "x", "1.0.0")


def test_the_digest_of_an_image_is_computed_from_its_manifest(site: Site) -> None:
    digest = site.add_manifest("kuberay/operator", "v1.7.0", {"mediaType": IMAGE_INDEX, "manifests": []})
    assert registries(site).digest(f"{site.host}/kuberay/operator", "v1.7.0").value == digest
    site.headers["/v2/kuberay/operator/manifests/v1.7.0"] = {"Docker-Content-Digest": f"sha256:{HASH}"}
    with pytest.raises(NotFoundError, match="Docker-Content-Digest is sha256:aaaa"):
        registries(site).digest(f"{site.host}/kuberay/operator", "v1.7.0")


def test_a_bearer_challenge_gets_an_anonymous_token(site: Site) -> None:
    site.needs_token = True
    digest = site.add_manifest("x", "1", {"mediaType": IMAGE_INDEX})
    assert registries(site).digest(f"{site.host}/x", "1").value == digest
    assert site.requests[1] == "/token?service=registry&scope=repository%3Ax%3Apull"


def test_an_unreachable_registry_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"127\.0\.0\.1"):
        Registries(plain_hosts=["127.0.0.1:1"], timeout_s=1).digest("127.0.0.1:1/x", "1")


def test_tags_are_read_from_every_page(site: Site) -> None:
    first, second = "/v2/x/tags/list?n=1000", "/v2/x/tags/list?n=1000&last=b"
    site.pages |= {
        first: (b'{"tags": ["a", "b"]}', "application/json"),
        second: (b'{"tags": ["c"]}', "application/json"),
    }
    site.headers[first] = {"Link": f'<{second}>; rel="next"'}
    assert registries(site).tags(f"{site.host}/x") == ("a", "b", "c")
    site.headers[first] = {"Link": f'<{first}>; rel="next"'}
    with pytest.raises(NoAnswerError, match="does not end after 200 pages"):
        registries(site).tags(f"{site.host}/x")


def test_details_of_a_chart_are_those_of_the_index_or_of_its_configuration(site: Site) -> None:
    site.add_index("entries: {x: [{version: 1.0.0, appVersion: v2.0.0, kubeVersion: '>=1.30'}, {version: 0.9.0}]}")
    url = f"http://{site.host}/charts"
    assert registries(site).details(url, "x", "1.0.0") == ChartDetails("v2.0.0", ">=1.30")
    assert registries(site).details(url, "x", "0.9.0") == ChartDetails("", "")
    with pytest.raises(NotFoundError, match=r"has no chart x 3\.0\.0"):
        registries(site).details(url, "x", "3.0.0")
    site.add_chart("charts/x", "1.0.0", f"sha256:{HASH}", appVersion="v2.0.0")
    assert registries(site).details(f"oci://{site.host}/charts", "x", "1.0.0") == ChartDetails("v2.0.0", "")


def test_only_not_found_says_that_a_source_does_not_have_it(site: Site) -> None:
    for status, is_known in ((404, True), (403, False), (429, False), (500, False)):
        site.statuses["/v2/x/manifests/1"] = status
        with pytest.raises(NotFoundError, match=rf"/v2/x/manifests/1: HTTP status {status}") as caught:
            registries(site).digest(f"{site.host}/x", "1")
        assert isinstance(caught.value, NoAnswerError) is not is_known, status


def test_a_basic_challenge_gets_the_login(site: Site) -> None:
    site.login = base64.b64encode(b"AWS:password").decode()
    digest = site.add_manifest("x", "1", {"mediaType": IMAGE_INDEX})
    with pytest.raises(NotFoundError, match="requires Basic authentication"):
        registries(site).digest(f"{site.host}/x", "1")
    knowing = Registries(plain_hosts=[site.host], login={site.host: site.login}.get)
    assert knowing.digest(f"{site.host}/x", "1").value == digest


def test_only_ecr_registries_get_a_login_from_aws() -> None:
    asked: list[str] = []

    def client(region: str) -> Any:  # noqa: ANN401  # boto3's clients have no types
        asked.append(region)
        return boto3.client("ecr", region_name=region, aws_access_key_id="a", aws_secret_access_key="b")

    login = ecr_login(client)
    assert (login("quay.io"), asked) == (None, [])
    with mock_aws():
        token = login("602401143452.dkr.ecr.us-west-2.amazonaws.com")
    assert base64.b64decode(str(token)).startswith(b"AWS:")
    assert asked == ["us-west-2"]
