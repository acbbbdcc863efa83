"""YAML is parsed by version 1.2, and values round-trip."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.spec.catalog import CATALOG_FILE
from infra.spec.errors import SettingsError
from infra.spec.release import RELEASE_FILE
from infra.spec.yaml_text import KeyPath, Scalar, edited, inline, parse

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


def test_a_scalar_is_what_yaml_1_2_says_it_is() -> None:
    cases: list[tuple[str, object]] = [
        ("3e-3", 0.003),
        ("1e5", 100000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("[1, a, 2.5]", [1, "a", 2.5]),
    ]
    for text, value in cases:
        parsed = parse(text, source="x").value
        assert parsed == value, text
        assert type(parsed) is type(value), text


@example(["?a", ":b", "c:d"])
@given(SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS))
def test_a_value_round_trips(value: object) -> None:
    assert parse(f"key: {inline(value)}", source="x").value == {"key": value}


@given(st.text())
def test_a_value_takes_one_line(text: str) -> None:
    assert len(inline(text).splitlines()) <= 1


def test_the_line_of_every_key_is_known() -> None:
    lines = parse("loop:\n  # a comment\n  epochs: 3\nrun: {seed: 1}\n", source="x").lines
    assert lines == {("loop",): 1, ("loop", "epochs"): 3, ("run",): 4, ("run", "seed"): 4}


def test_an_error_is_named_with_its_place() -> None:
    for text, message in (
        ("loop:\n  epochs: 3\n bad\n", "my.yaml:3:2: not valid YAML"),
        ("loop:\n\tepochs: 3\n", "my.yaml:2:1: not valid YAML"),
        ("loop: {epochs: 1}\nloop: {epochs: 2}\n", "my.yaml:2:1: duplicate key `loop`, first on line 1"),
        ("loop:\n  seed: 1\n  seed: 2\n", "my.yaml:3:3: duplicate key `loop.seed`, first on line 2"),
        ("loop: {1: 2}\n", "my.yaml:1:8: a key must be text"),
        ("run: !!python/object:os.system {}\n", "my.yaml:1:6: not valid YAML"),
        ("a: 1\n--- \nb: 2\n", "my.yaml:2:1: not valid YAML"),
        ("a: &x [*x]\nb: &y {c: *y}\n", "my.yaml: not valid YAML"),
        ("a: \x00", "my.yaml: not valid YAML"),
    ):
        with pytest.raises(SettingsError) as caught:
            parse(text, source="my.yaml")
        assert str(caught.value).startswith(message), text


TEXT = """\
# A comment.
addons:
  vpc-cni: {version: null} # flow
charts:
  kuberay:
    repository: https://example.com # where
    sha256: null

    nested: {a: 1} # last
# Of what follows.
  kueue:
    sha256: "old"
"""


def test_an_edit_changes_only_its_value_and_needs_its_mapping() -> None:
    cases: list[tuple[KeyPath, Scalar, str, str]] = [
        (("charts", "kuberay", "sha256"), "0a", "    sha256: null\n", "    sha256: 0a\n"),
        (("charts", "kueue", "sha256"), "123", '"old"', '"123"'),
        (("addons", "vpc-cni", "version"), "v1", "{version: null} # flow", "{version: v1} # flow"),
        (("addons", "vpc-cni", "as_of"), date(2026, 1, 2), "null} # flow", "null, as_of: 2026-01-02} # flow"),
        (("addons", "vpc-cni", "source"), "a, b", "null} # flow", "null, source: 'a, b'} # flow"),
        (("charts", "kuberay", "as_of"), date(2026, 1, 2), "    nested", "    as_of: 2026-01-02\n    nested"),
        (("charts", "kueue", "source"), "x: y", '    sha256: "old"\n', "    source: 'x: y'\n    sha256: \"old\"\n"),
        (("charts", "kueue", "usd"), 1.5, '    sha256: "old"\n', '    usd: 1.5\n    sha256: "old"\n'),
    ]
    for path, value, before, after in cases:
        assert TEXT.count(before) == 1, path
        assert edited(TEXT, {path: value}) == TEXT.replace(before, after), path
    with pytest.raises(KeyError, match=r"charts\.absent"):
        edited(TEXT, {("charts", "absent", "x"): 1})


@given(value=st.none() | st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))))
@example(value="?0")
@example(value=": ")
def test_any_text_reads_back_as_it_was_written(value: str | None) -> None:
    for path in (("addons", "vpc-cni", "version"), ("addons", "vpc-cni", "new"), ("charts", "kueue", "new")):
        document = parse(edited(TEXT, {path: value}), source="x").value
        assert document[path[0]][path[1]][path[2]] == value


def test_an_edit_of_a_shipped_file_changes_one_line() -> None:
    cases: list[tuple[Path, KeyPath]] = [
        (RELEASE_FILE, ("images", "trainer", "digest")),
        (RELEASE_FILE, ("addons", "vpc-cni", "version")),
        (CATALOG_FILE, ("prices", "databases", "db.m7g.large", "usd")),
        (CATALOG_FILE, ("instances", "g5.xlarge", "usd_per_hour")),
    ]
    for file, path in cases:
        text = file.read_text(encoding="utf-8")
        changed = edited(text, {path: 12.5})
        [line] = [new for old, new in zip(text.splitlines(), changed.splitlines(), strict=True) if old != new]
        assert f"{path[-1]}: 12.5" in line, file
        assert edited(text, {}) == text, file
