"""The documented policy has the actions that the finder needs, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

from infra.lifecycle.capacity.permissions import ACTIONS
from tests.infra.lifecycle.capacity.test_finder import ALL

PAGE = Path(__file__).resolve().parents[4] / "docs" / "CAPACITY.md"


def test_the_actions_are_those_of_the_requests() -> None:
    assert {*ACTIONS} == {*ALL.values(), "servicequotas:GetAWSDefaultServiceQuota"}


def test_the_page_has_them_as_a_policy() -> None:
    (block,) = re.findall(r"^    \{\n.*?^    \}$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    (statement,) = json.loads(dedent(block))["Statement"]
    assert statement["Action"] == list(ACTIONS)
