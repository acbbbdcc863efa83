"""The documents: links, the change log, an entry for every error, code of docs/OWN_CODE.md, and figures of docs/GPU_OPTIMIZATION.md."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.spec.errors import PlatformError
from infra.spec.release import load_release
from observability.metrics.inventory import INVENTORY
from tests.docs.commands.found import ROOT, documents
from tests.docs.commands.statics import check_setting
from training.config.schema import TrainingSettings
from training.new_project import TEMPLATE
from training.roofline import DOCUMENT, limits, replaced, table

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings_that_exist() -> None:
    written = [*documents(), ROOT / "CHANGELOG.md", *(ROOT / "docs" / "reference").glob("*.md")]
    broken = []
    for document in written:
        prose = re.sub(r"`[^`\n]*`(?!\])", "", document.read_text(encoding="utf-8"))
        for link in _LINK.findall(prose):
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
                broken.append(f"{document.name}: {link}")
    assert broken == []


def test_the_changelog_begins_with_the_version_of_the_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+) - ", text, re.MULTILINE)
    assert versions[0] == str(load_release().platform)


TROUBLESHOOTING = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
PACKAGES = ("infra", "observability", "platform_charts", "training", "tune")
STAND_ALONE = "platform_charts.images"
"""Programs of images, which cannot import the platform's errors."""


class Entry(NamedTuple):
    """An entry of the document.

    Attributes:
        title: its heading.
        body: the text below.
    """

    title: str
    body: str

    @property
    def error(self) -> str:
        """The class that the entry begins with; empty if it begins with none."""
        found = re.match(r"`(\w+)`", self.body.lstrip())
        return found[1] if found else ""


def entries() -> list[Entry]:
    """The entries of the document, in order."""
    parts = re.split(r"^#{2,3} (.*)$", TROUBLESHOOTING, flags=re.MULTILINE)[1:]
    return [Entry(*pair) for pair in zip(parts[::2], parts[1::2], strict=True) if pair[1].strip() and "**" in pair[1]]


ENTRIES = entries()
_ERROR = re.compile(r"^class \w+\(\w*Error\b", re.MULTILINE)


@cache
def error_classes() -> dict[str, type[PlatformError]]:
    """The platform's error and all that derive from it, imported from the modules that define an error."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = (
        ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if _ERROR.search(file.read_text())
    )
    for name in sorted(names):
        if not name.startswith(STAND_ALONE):
            importlib.import_module(name)
    found = [PlatformError]
    for one in found:
        found += one.__subclasses__()
    return {one.__name__: one for one in found if one.__module__.startswith(PACKAGES)}


def test_every_error_class_has_an_entry_with_its_exit_status() -> None:
    assert set(error_classes()) - {entry.error for entry in ENTRIES} == set()
    for entry in ENTRIES:
        if entry.error:
            status = error_classes()[entry.error].status
            assert f"`{entry.error}`, exit status {status.value}" in entry.body, entry.title


OWN_CODE = (ROOT / "docs" / "OWN_CODE.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"```python\n(.*?)```", OWN_CODE, re.DOTALL)


def test_the_quoted_code_is_the_template_s() -> None:
    sources = [
        (TEMPLATE / "my_project" / file).read_text(encoding="utf-8") for file in ("model.py", "data.py", "objective.py")
    ]
    assert len(QUOTED) == 3
    assert all(source.endswith(code) for source, code in zip(sources, QUOTED, strict=True))


TEXT = DOCUMENT.read_text(encoding="utf-8")
_SECTIONS = "|".join(TrainingSettings.model_fields)
_SETTING = re.compile(rf"(?<![\w./-])((?:{_SECTIONS})(?:\.\w+)+)(?:=([^\s\"`]+))?(?![\w(])")


def test_its_settings_accept_their_values_and_its_metrics_exist() -> None:
    code = ["".join(found) for found in re.findall(r"`([^`\n]+)`|^ {4}(.+)$", TEXT, flags=re.MULTILINE)]
    named = {(found[1], found[2]) for text in code for found in _SETTING.finditer(text)}
    assert {"loop.global_batch", "precision.mode", "communication.hook"} <= {key for key, _ in named}
    for key, value in named:
        check_setting(key, value)
    assert set(re.findall(r"`(rtp_\w+)`", TEXT)) <= {spec.name for spec in INVENTORY}


def test_the_table_is_the_computed_one() -> None:
    assert replaced(TEXT) == TEXT
    assert table() in TEXT


def test_the_limits_are_those_of_data_sheets_and_of_a_ring() -> None:
    p5 = next(one for one in limits() if one.instance.name == "p5.48xlarge")
    assert p5.network_bandwidth == 400e9
    assert p5.all_reduce_seconds(2, size=400e9) == pytest.approx(1)
    assert p5.all_reduce_seconds(1000, size=400e9) == pytest.approx(1.998)
    assert p5.ridge == pytest.approx(989.5e12 / 3.35e12)
    t4 = next(one for one in limits() if one.gpu.model == "T4")
    assert (t4.number_format, t4.flops) == ("fp16", 65e12)
    bandwidths = {one.instance.name: one.memory_bandwidth for one in limits() if one.gpu.model == "A100"}
    assert bandwidths == {"p4d.24xlarge": 1555e9, "p4de.24xlarge": 2039e9}
