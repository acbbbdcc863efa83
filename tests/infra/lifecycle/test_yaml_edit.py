"""Changing values of a YAML file without touching anything else."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.lifecycle.yaml_edit import KeyPath, Scalar, edited
from infra.spec.catalog import CATALOG_FILE
from infra.spec.release import RELEASE_FILE

TEXT = """\
# A comment.
addons:
  vpc-cni: { version: null } # flow
charts:
  kuberay:
    repository: https://example.com # where
    sha256: null

    nested: { a: 1 } # last
  kueue:
    sha256: "old"
"""


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        (("charts", "kuberay", "sha256"), "0a", "    sha256: null\n", "    sha256: 0a\n"),
        (("charts", "kueue", "sha256"), "123", 'sha256: "old"', "sha256: '123'"),
        (("addons", "vpc-cni", "version"), "v1", "{ version: null } # flow", "{ version: v1 } # flow"),
        (("addons", "vpc-cni", "as_of"), date(2026, 1, 2), "null } # flow", "null, as_of: 2026-01-02 } # flow"),
        (("addons", "vpc-cni", "source"), "a, b", "null } # flow", "null, source: 'a, b' } # flow"),
        (("charts", "kuberay", "as_of"), date(2026, 1, 2), "# last\n", "# last\n    as_of: 2026-01-02\n"),
        (("charts", "kueue", "source"), "x: y", '"old"\n', "\"old\"\n    source: 'x: y'\n"),
        (("charts", "kueue", "usd"), 1.5, '"old"\n', '"old"\n    usd: 1.5\n'),
    ],
)
def test_only_the_value_changes(path: tuple[str, ...], value: Scalar, before: str, after: str) -> None:
    assert TEXT.count(before) == 1
    assert edited(TEXT, {path: value}) == TEXT.replace(before, after)


def test_several_changes_are_made_at_once() -> None:
    changes: dict[KeyPath, Scalar] = {
        ("charts", "kueue", key): str(index) for index, key in enumerate(("sha256", "as_of", "source"))
    }
    assert yaml.safe_load(edited(TEXT, changes))["charts"]["kueue"] == {"sha256": "0", "as_of": "1", "source": "2"}


def test_a_mapping_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match=r"charts\.absent"):
        edited(TEXT, {("charts", "absent", "x"): 1})


@given(value=st.one_of(st.none(), st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))))
def test_any_text_reads_back_as_it_was_written(value: str | None) -> None:
    for path in (("addons", "vpc-cni", "version"), ("addons", "vpc-cni", "new"), ("charts", "kueue", "new")):
        document = yaml.safe_load(edited(TEXT, {path: value}))
        assert document[path[0]][path[1]][path[2]] == value


@pytest.mark.parametrize("file", [RELEASE_FILE, CATALOG_FILE])
def test_no_change_leaves_the_shipped_files_as_they_are(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert edited(text, {}) == text
