"""Options that contradict each other or that nobody takes; what the registries share beyond what they show themselves."""

from __future__ import annotations

import pytest
from pydantic import model_validator

from infra.spec.section import Section
from training.errors import SettingsError
from training.factories import check_importable, nearest, parse_options


class Range(Section):
    """Options with a rule over two of them."""

    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self


class Nothing(Section):
    """No options."""


def test_options_that_break_a_rule_together_are_refused_with_that_rule() -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_options(Range, {"low": 3}, setting="model.options", owner="model range")
    assert refusal.value.args[0] == "model.options: low=3 must be below high=1"


def test_an_option_of_an_owner_without_options_is_refused_as_such() -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_options(Nothing, {"low": 3}, setting="model.options", owner="model empty")
    assert refusal.value.remedy == "options of model empty: none"


def test_only_a_near_name_is_offered() -> None:
    assert nearest("resnet5", ["mlp", "resnet50"]) == "did you mean resnet50? "
    assert not nearest("transformer", ["mlp", "resnet50"])


def test_the_setting_that_holds_an_import_path_is_named() -> None:
    with pytest.raises(SettingsError, match=r"data\.dataset=no_such_module:load cannot be imported"):
        check_importable("no_such_module:load", setting="data.dataset")
