"""Mistakes in one's own factories that the source shows: refused without importing the module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from training.code.import_path import on_import_path
from training.config.schema import ModelSettings
from training.errors import SettingsError
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
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Name of a module of a code folder."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(getattr(request, "param", MODULE), encoding="utf-8")
    return name


def check(folder: Path, name: str, **options: float) -> None:
    """Validate a model's settings as the command line does."""
    with on_import_path(folder):
        validate(ModelSettings(name=name, options=dict(options)))


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        ("net", {"width": 3}),
        ("open_net", {"anything": 3}),
        ("positional", {"width": 3}),
        ("Net", {}),
        *((name, {"anything": 3}) for name in ("wrapped", "Inherits", "also", "other", "one", "two")),
    ],
)
def test_a_factory_that_takes_its_options_passes(
    tmp_path: Path, module: str, factory: str, options: dict[str, float]
) -> None:
    check(tmp_path, f"{module}:{factory}", **options)
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("factory", "options", "parts"),
    [
        ("Nett", {}, ["has no attribute 'Nett'", "did you mean Net?"]),
        ("imported", {}, ["has no attribute 'imported'"]),
        (
            "net",
            {"depth": 3},
            ["model.options={'depth': 3}", "'depth'", "(spec, *, width: int = 32, dropout=0.2)"],
        ),
        ("Net", {"depth": 3}, ["'depth'", "(spec, *, width=32)"]),
        ("bare", {}, ["too many positional arguments", "its signature is ()"]),
        ("positional", {}, ["missing a required argument: 'width'"]),
    ],
)
def test_a_factory_that_does_not_exist_or_not_take_its_options_is_refused(
    tmp_path: Path, module: str, factory: str, options: dict[str, float], parts: list[str]
) -> None:
    with pytest.raises(SettingsError) as refused:
        check(tmp_path, f"{module}:{factory}", **options)
    for part in parts:
        assert part in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    "module", ["from elsewhere import *\n", "def __getattr__(name): ...\n", "globals().update(net=1)\n"], indirect=True
)
def test_what_the_source_does_not_tell_passes(tmp_path: Path, module: str) -> None:
    check(tmp_path, f"{module}:net", width=3)
