"""The IAM policies of the two commands, from what each kind says that it calls.

    python -m infra.lifecycle.leftovers.policy

writes the actions of the reaper for its role in a stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from infra.lifecycle.leftovers.elsewhere import READS
from infra.lifecycle.leftovers.inventory import KINDS
from infra.spec.reaper_actions import ACTIONS_FILE

_WHO = ("sts:GetCallerIdentity",)


def audit_policy() -> dict[str, Any]:
    """What the audit needs: to list, in any region."""
    return _document(action for kind in KINDS.values() for action in kind.reads)


def reaper_policy() -> dict[str, Any]:
    """What the reaper needs: to list, and to delete.

    It has no conditions on tags: half of what is left has none. So it belongs in accounts that hold nothing but test clusters.
    """
    return _document(_reaper_actions())


def reaper_actions_text() -> str:
    """The actions of the reaper, as the file has them."""
    return json.dumps(sorted({*_reaper_actions(), *_WHO}), indent=2) + "\n"


def _reaper_actions() -> Iterator[str]:
    yield from READS
    yield from (action for kind in KINDS.values() for action in (*kind.reads, *kind.writes))


def _document(actions: Iterable[str]) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": sorted({*actions, *_WHO}), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


if __name__ == "__main__":
    ACTIONS_FILE.write_text(reaper_actions_text(), encoding="utf-8")
