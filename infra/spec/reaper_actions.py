"""The IAM actions of the reaper, for its role in a stack."""

from __future__ import annotations

import json
from pathlib import Path

ACTIONS_FILE = Path(__file__).with_suffix(".json")
"""`python -m infra.lifecycle.leftovers.policy` writes it, from what each kind of resource needs."""


def reaper_actions() -> tuple[str, ...]:
    """The actions, sorted."""
    return tuple(json.loads(ACTIONS_FILE.read_text(encoding="utf-8")))
