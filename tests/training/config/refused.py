"""Asserts that combinations of settings are refused."""

from __future__ import annotations

from collections.abc import Mapping

from training.config.load import load_settings
from training.errors import SettingsError


def refusal(*overrides: str) -> str:
    """What is said of settings, written as for `--set`, and its remedy."""
    try:
        load_settings(overrides=list(overrides), environment={})
    except SettingsError as error:
        return str(error)
    return "nothing: they are accepted"


def assert_refused(cases: Mapping[str, str], *common: str) -> None:
    """Assert that settings, apart by spaces, are refused with these words; ` … ` stands for others."""
    for overrides, words in cases.items():
        said = refusal(*common, *overrides.split(" "))
        assert [part for part in words.split(" … ") if part not in said] == [], f"{overrides}: {said}"
