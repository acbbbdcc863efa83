"""docs/GPU_OPTIMIZATION.md: its table is the computed one, and its settings and metrics exist."""

from __future__ import annotations

import re

import pytest

from observability.metrics.inventory import INVENTORY
from tests.docs.commands.statics import check_setting
from training.config.schema import TrainingSettings
from training.roofline import DOCUMENT, limits, replaced, table

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
