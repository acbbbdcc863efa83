"""`python -m observability.alerts`: check the rules and write the file that the stack delivers.

The file is committed, because the stack imports nothing of `observability`, and so that a change of the rules is seen in review. A test
compares it with the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infra.spec.manifest_yaml import write_document
from observability.alerts.catalog import GROUPS
from observability.alerts.check import check_rules
from observability.alerts.model import Group

FILE = Path(__file__).parents[2] / "platform_charts" / "objects" / "alert_rules.yaml"

_HEADER = "# Written by `python -m observability.alerts` from observability/alerts; do not edit.\n"


def rules_file(groups: Sequence[Group] = GROUPS) -> str:
    """The rules as Prometheus and promtool read them.

    Raises:
        RuleError: a rule uses a metric or a label that nothing exports.
    """
    check_rules(groups)
    manifest = {"groups": [group.manifest() for group in groups]}
    return _HEADER + write_document(manifest)


if __name__ == "__main__":
    FILE.write_text(rules_file(), encoding="utf-8")
    print(f"wrote {FILE}")
