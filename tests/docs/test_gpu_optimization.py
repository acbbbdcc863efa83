"""docs/GPU_OPTIMIZATION.md: its table is the computed one, and its settings, metrics and commands exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from observability.metrics.inventory import INVENTORY
from tests.docs.make_commands import make_commands, problems_of
from tests.docs.settings import check_setting
from training.config.schema import TrainingSettings
from training.roofline import DOCUMENT, limits, replaced, table

TEXT = DOCUMENT.read_text(encoding="utf-8")
_SECTIONS = "|".join(TrainingSettings.model_fields)
_SETTING = re.compile(rf"(?<![\w./-])((?:{_SECTIONS})(?:\.\w+)+)(?:=([^\s\"`]+))?(?![\w(])")


def settings_in(text: str) -> Iterator[tuple[str, str | None]]:
    """The settings that a text names in code, each with the value that it gives it."""
    for code in re.findall(r"`([^`\n]+)`|^ {4}(.+)$", text, flags=re.MULTILINE):
        yield from ((found[1], found[2]) for found in _SETTING.finditer("".join(code)))


NAMED = sorted(set(settings_in(TEXT)), key=str)


def test_settings_are_found_in_the_document() -> None:
    found = {key for key, _ in NAMED}
    assert {"loop.global_batch", "precision.mode", "data.pin_memory", "communication.hook", "profile.memory"} <= found


@pytest.mark.parametrize(("key", "value"), NAMED)
def test_every_setting_is_in_the_schema_with_its_value(key: str, value: str | None) -> None:
    check_setting(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [("loop.batch", None), ("precision.mode", "bf8"), ("compute.compile.x", None)]
)
def test_a_setting_that_does_not_exist_is_found_out(key: str, value: str | None) -> None:
    with pytest.raises((AssertionError, ValueError, TypeError)):
        check_setting(key, value)


def test_every_metric_is_in_the_inventory() -> None:
    named = set(re.findall(r"`(rtp_\w+)`", TEXT))
    assert named
    assert named - {spec.name for spec in INVENTORY} == set()


@pytest.mark.parametrize("typed", make_commands(TEXT))
def test_a_make_command_has_a_target_and_variables_with_an_effect(typed: str) -> None:
    assert list(problems_of(typed)) == []


def test_the_table_is_the_computed_one() -> None:
    assert replaced(TEXT) == TEXT
    assert table() in TEXT


def test_a_ring_of_two_nodes_sends_the_buffer_once_and_a_large_one_twice() -> None:
    p5 = next(one for one in limits() if one.instance.name == "p5.48xlarge")
    assert p5.network_bandwidth == 400e9
    assert p5.all_reduce_seconds(2, size=400e9) == pytest.approx(1)
    assert p5.all_reduce_seconds(1000, size=400e9) == pytest.approx(1.998)


def test_the_ridge_point_of_an_h100_is_that_of_its_data_sheet() -> None:
    p5 = next(one for one in limits() if one.instance.name == "p5.48xlarge")
    assert p5.ridge == pytest.approx(989.5e12 / 3.35e12)


def test_a_gpu_without_bf16_has_its_fp16_peak() -> None:
    t4 = next(one for one in limits() if one.gpu.model == "T4")
    assert (t4.number_format, t4.flops) == ("fp16", 65e12)


def test_the_two_a100s_have_different_memory() -> None:
    bandwidths = {one.instance.name: one.memory_bandwidth for one in limits() if one.gpu.model == "A100"}
    assert bandwidths == {"p4d.24xlarge": 1555e9, "p4de.24xlarge": 2039e9}
