"""CHANGELOG.md keeps the format of Keep a Changelog, and its newest version is the release's."""

from __future__ import annotations

import re
from datetime import date

from infra.spec.release import load_release
from tests.docs.workflows import ROOT


def test_the_changelog_lists_dated_versions_from_that_of_the_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+) - (.+)$", text, re.MULTILINE)
    assert versions[0][0] == str(load_release().platform)
    assert len(versions) == len(re.findall(r"^## ", text, re.MULTILINE))
    assert all(
        date.fromisoformat(when) for place, (_, when) in enumerate(versions) if (place, when) != (0, "unreleased")
    )
    numbers = [tuple(map(int, version.split("."))) for version, _ in versions]
    assert numbers == sorted({*numbers}, reverse=True)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {*re.findall(r"^### (.+)$", text, re.MULTILINE)} <= kinds
