"""Looking up packages through the real pip, and files, on a local server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.lifecycle.release.web_sources import Pip, RemoteFile, Web
from infra.spec.errors import NoAnswerError, NotFoundError
from tests.infra.lifecycle.release.servers import Site, served


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with served() as one:
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{one.host}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        yield one


def test_the_versions_of_a_package_are_those_of_pips_index(site: Site) -> None:
    links = "".join(
        f'<a href="/f/ray-{version}-py3-none-any.whl">ray-{version}-py3-none-any.whl</a>'
        for version in ("2.60.0", "2.61.0")
    )
    site.pages["/simple/ray/"] = (f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
    assert sorted(Pip().versions("ray")) == ["2.60.0", "2.61.0"]


def test_a_package_without_versions_and_a_slow_index_are_no_answers(site: Site) -> None:
    with pytest.raises(NoAnswerError, match="pip index versions ray: ERROR: No matching distribution found for ray"):
        Pip().versions("ray")
    assert "/simple/ray/" in site.requests
    with pytest.raises(NoAnswerError, match=r"no answer in 0\.01 s"):
        Pip(timeout_s=0.01).versions("ray")


def test_a_file_is_described_without_its_content_or_not_found_or_no_answer(site: Site) -> None:
    site.pages["/installer.tar.gz"] = (b"12345", "application/gzip")
    site.headers["/installer.tar.gz"] = {"ETag": '"abc"'}
    assert Web().file(f"http://{site.host}/installer.tar.gz") == RemoteFile("5", '"abc"')
    with pytest.raises(NotFoundError, match="installer: HTTP status 404"):
        Web().file(f"http://{site.host}/installer")
    with pytest.raises(NoAnswerError, match=r"127\.0\.0\.1"):
        Web(timeout_s=1).file("http://127.0.0.1:1/installer")
