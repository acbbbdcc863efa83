"""Options of factories, and mistakes in one's own that the source shows, without an import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import Field, model_validator

from infra.spec.section import Section
from training.code.import_path import on_import_path
from training.config.schema import ModelSettings
from training.errors import SettingsError
from training.factories import parse_options, suggest
from training.models.registry import validate

MODULE = """
raise SystemExit("imported")

def net(spec, *, width: int = 32, dropout=0.2): ...
def open_net(spec, **options): ...
def bare(): ...
def positional(spec, /, width): ...
@decorated
def wrapped(): ...
class Net(Base):
    def __init__(self, spec, *, width=32): ...
class Inherits(Net): ...
if True:
    from elsewhere import imported as also, other
one = two = partial(net, width=3)
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    """Name of a module of a code folder."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    return name


def check(folder: Path, name: str, **options: float) -> None:
    """Validate a model's settings as the command line does."""
    with on_import_path(folder):
        validate(ModelSettings(name=name, options=dict(options)))


def test_a_factory_that_takes_its_options_passes(tmp_path: Path, module: str) -> None:
    check(tmp_path, f"{module}:net", width=3)
    check(tmp_path, f"{module}:positional", width=3)
    check(tmp_path, f"{module}:Net")
    for factory in ("open_net", "wrapped", "Inherits", "also", "other", "one", "two"):
        check(tmp_path, f"{module}:{factory}", anything=3)
    assert module not in sys.modules
    for text in ("from elsewhere import *\n", "def __getattr__(name): ...\n", "globals().update(net=1)\n"):
        (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
        check(tmp_path, f"{module}:net", width=3)  # the source does not tell


def test_a_factory_that_does_not_exist_or_not_take_its_options_is_refused(tmp_path: Path, module: str) -> None:
    for factory, options, *parts in (
        ("Nett", {}, "has no attribute 'Nett'", "did you mean Net?"),
        ("imported", {}, "has no attribute 'imported'"),
        ("net", {"depth": 3}, "model.options={'depth': 3}", "'depth'", "(spec, *, width: int = 32, dropout=0.2)"),
        ("Net", {"depth": 3}, "'depth'", "(spec, *, width=32)"),
        ("bare", {}, "too many positional arguments", "its signature is ()"),
        ("positional", {}, "missing a required argument: 'width'"),
    ):
        with pytest.raises(SettingsError) as refused:
            check(tmp_path, f"{module}:{factory}", **dict[str, float](options))
        assert [part for part in parts if str(part) not in str(refused.value)] == [], factory
        assert refused.value.remedy


class Range(Section):
    """Options with a rule over two of them."""

    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self


class Columns(Section):
    """An option without a default, and one whose default is made."""

    inputs: tuple[str, ...] = Field(description="Columns.")
    shapes: dict[str, int] = Field(default_factory=dict, description="Shapes.")


def test_options_are_rejected_with_the_rule_that_they_break_or_with_those_that_are_required() -> None:
    with pytest.raises(SettingsError) as raised:
        parse_options(Range, {"low": 3}, setting="model.options", owner="model range")
    assert raised.value.args[0] == "model.options: low=3 must be below high=1"
    with pytest.raises(SettingsError) as raised:
        parse_options(Columns, {}, setting="data.options", owner="dataset table")
    assert raised.value.remedy == "options of dataset table: inputs (required): Columns.; shapes (default {}): Shapes."


def test_only_a_close_match_is_suggested() -> None:
    assert suggest("resnet5", ["mlp", "resnet50"]) == "did you mean resnet50? "
    assert not suggest("transformer", ["mlp", "resnet50"])
