"""The list of checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.cluster.conformance.catalogue import CHECKS, chosen
from training.errors import SettingsError

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "CONFORMANCE.md"


def test_the_guide_has_a_row_for_each_check() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`([^`]+)`", row)] == [one.name for one in CHECKS]


def test_checks_are_chosen_by_name_and_by_group_in_their_order() -> None:
    assert chosen(()) == CHECKS
    assert [one.name for one in chosen(("training.resume", "nodes"))] == [
        "nodes.gpus",
        "nodes.efa",
        "nodes.driver",
        "training.resume",
    ]


@pytest.mark.parametrize(
    ("name", "meant"), [("node.gpus", "did you mean nodes.gpus?"), ("policies", "did you mean policy?")]
)
def test_an_unknown_check_is_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(SettingsError) as refused:
        chosen((name,))
    assert meant in str(refused.value)
