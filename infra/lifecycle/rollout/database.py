"""What an update does to MLflow's database, and when: read from a preview."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.policy.tokens import DATABASE

_RESTARTS: Mapping[str, str] = {
    "instanceClass": "restarts for its new class",
    "caCertIdentifier": "restarts for its new certificate",
    "port": "restarts for its new port",
}
"""Inputs whose change restarts an instance (RDS user guide, "Available settings" of modifying a DB instance)."""


def explain_database(preview: Mapping[str, Any]) -> Iterator[str]:
    """A line for each thing that takes the database offline.

    Args:
        preview: the document of `pulumi preview --json`.
    """
    for step in preview.get("steps") or ():
        if step["op"] == "update" and step["urn"].split("::")[2].endswith(DATABASE):
            yield from _explain(step)


def _explain(step: Mapping[str, Any]) -> Iterator[str]:
    old, new = (step.get(state) or {} for state in ("oldState", "newState"))
    before, after = old.get("inputs") or {}, new.get("inputs") or {}
    window = (old.get("outputs") or {}).get("maintenanceWindow") or "of RDS's choice"
    is_immediate = after.get("applyImmediately")
    when = "at once" if is_immediate else f"in its maintenance window, {window} (UTC)"
    if before.get("engineVersion") != after.get("engineVersion"):
        versions = f"from PostgreSQL {before.get('engineVersion')} to {after.get('engineVersion')}"
        yield f"the database is upgraded {versions}, {when}: MLflow is offline for minutes, and there is no way back"
    for key, what in _RESTARTS.items():
        if before.get(key) != after.get(key):
            sooner = "" if is_immediate else "; with database.apply_immediately: true at once"
            yield f"the database {what} ({before.get(key)} to {after.get(key)}) {when}: MLflow is offline for a minute or two{sooner}"
