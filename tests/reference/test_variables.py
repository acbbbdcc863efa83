"""The inventory has every variable of ours, each once, and `.env.example` those that users may set."""

from __future__ import annotations

import re
from pathlib import Path

from infra.spec.variables.internal import INTERNAL
from infra.spec.variables.inventory import INVENTORY
from infra.spec.variables.libraries import LIBRARIES
from infra.spec.variables.users import USERS
from tests.engines.checkouts import project_files

ROOT = Path(__file__).resolve().parents[2]


def test_each_variable_is_in_one_group_and_one_of_other_software_says_whose_it_is() -> None:
    names = [one.name for part in (USERS, INTERNAL, LIBRARIES) for group in part.values() for one in group]
    assert sorted(names) == sorted(INVENTORY)
    assert [one.name for group in LIBRARIES.values() for one in group if not one.library] == []


def test_the_inventory_has_every_name_of_ours_that_any_file_mentions_and_its_users_mention_it() -> None:
    texts = {file: (ROOT / file).read_bytes() for file in project_files() if not file.startswith("tests/")}
    found = {name.decode() for text in texts.values() for name in re.findall(rb"\bRTP_[A-Z_]*[A-Z]\b", text)}
    assert found - INVENTORY.keys() == set()
    inventory = "infra/spec/variables/"
    code = b"".join(text for file, text in texts.items() if not file.startswith((inventory, "docs/", ".env")))
    assert [name for name, one in INVENTORY.items() if name.startswith("RTP_") and name.encode() not in code] == []


def test_the_example_has_every_variable_of_a_user_once_and_as_a_comment() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE) == [one.name for group in USERS.values() for one in group]
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == []
