"""Parsing options and suggesting names; the tests of the registries cover the rest."""

from __future__ import annotations

import pytest
from pydantic import Field, model_validator

from infra.spec.section import Section
from training.errors import SettingsError
from training.factories import check_importable, parse_options, suggest


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


def test_options_that_contradict_each_other_are_rejected_with_the_rule() -> None:
    with pytest.raises(SettingsError) as raised:
        parse_options(Range, {"low": 3}, setting="model.options", owner="model range")
    assert raised.value.args[0] == "model.options: low=3 must be below high=1"


def test_the_remedy_says_which_options_are_required_and_the_defaults_of_the_others() -> None:
    with pytest.raises(SettingsError) as raised:
        parse_options(Columns, {}, setting="data.options", owner="dataset table")
    assert raised.value.remedy == "options of dataset table: inputs (required): Columns.; shapes (default {}): Shapes."


def test_only_a_close_match_is_suggested() -> None:
    assert suggest("resnet5", ["mlp", "resnet50"]) == "did you mean resnet50? "
    assert not suggest("transformer", ["mlp", "resnet50"])


def test_an_import_error_names_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"data\.dataset=no_such_module:load cannot be imported"):
        check_importable("no_such_module:load", setting="data.dataset")
