"""YAML is read by the rules of version 1.2, and what is written is read back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config.yaml_text import inline, parse
from training.errors import SettingsError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@pytest.mark.parametrize(
    ("text", "value"),
    [
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
    ],
)
def test_a_scalar_is_what_yaml_1_2_says_it_is(text: str, value: object) -> None:
    parsed, _ = parse(text, source="x")
    assert parsed == value
    assert type(parsed) is type(value)


@given(SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS))
def test_what_is_written_is_read_back_equal(value: object) -> None:
    assert parse(f"key: {inline(value)}", source="x")[0] == {"key": value}


@given(st.text())
def test_a_value_takes_one_line(text: str) -> None:
    assert len(inline(text).splitlines()) <= 1


def test_the_line_of_every_key_is_known() -> None:
    _, lines = parse("loop:\n  # a comment\n  epochs: 3\nrun: {seed: 1}\n", source="x")
    assert lines == {("loop",): 1, ("loop", "epochs"): 3, ("run",): 4, ("run", "seed"): 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loop:\n  epochs: 3\n bad\n", "my.yaml:3:2: not valid YAML"),
        ("loop:\n\tepochs: 3\n", "my.yaml:2:1: not valid YAML"),
        ("loop: {epochs: 1}\nloop: {epochs: 2}\n", "my.yaml:2:1: key `loop` stands a second time, first in line 1"),
        ("loop:\n  seed: 1\n  seed: 2\n", "my.yaml:3:3: key `loop.seed` stands a second time, first in line 2"),
        ("loop: {1: 2}\n", "my.yaml:1:8: a key must be text"),
        ("run: !!python/object:os.system {}\n", "my.yaml:1:6: not valid YAML"),
        ("a: 1\n--- \nb: 2\n", "my.yaml:2:1: not valid YAML"),
        ("a: &x [*x]\nb: &y {c: *y}\n", "my.yaml: not valid YAML"),
        ("a: \x00", "my.yaml: not valid YAML"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text, source="my.yaml")
    assert str(caught.value).startswith(message)
