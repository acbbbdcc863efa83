"""CHANGELOG.md keeps the format of Keep a Changelog, and its newest version is the release's."""

from __future__ import annotations

import re
from datetime import date

from infra.spec.release import load_release
from tests.docs.workflows import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSIONS = re.findall(r"^## (\d+\.\d+\.\d+) - (.+)$", TEXT, re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_newest_version_is_that_of_the_release() -> None:
    assert VERSIONS[0][0] == str(load_release().platform)


def test_every_section_is_a_version_with_its_date() -> None:
    assert len(VERSIONS) == len(re.findall(r"^## ", TEXT, re.MULTILINE))
    for place, (_, when) in enumerate(VERSIONS):
        assert when == "unreleased" if place == 0 and when == "unreleased" else date.fromisoformat(when)


def test_versions_are_listed_from_the_newest() -> None:
    numbers = [tuple(map(int, version.split("."))) for version, _ in VERSIONS]
    assert numbers == sorted({*numbers}, reverse=True)


def test_changes_are_of_the_known_kinds() -> None:
    kinds = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    assert kinds
    assert {*kinds} <= KINDS
