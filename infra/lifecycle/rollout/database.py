"""What an update does to MLflow's database, and when: read from a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.policy.tokens import DATABASE

_RESTARTS: Mapping[str, str] = {
    "instanceClass": "restarts for its new class",
    "caCertIdentifier": "restarts for its new certificate",
    "port": "restarts for its new port",
}
"""Inputs whose change restarts an instance (RDS user guide, "Available settings" of modifying a DB instance)."""


def explain_database(preview: Mapping[str, Any], *, pending: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """A line for each thing that takes the database offline.

    Args:
        preview: the document of `pulumi preview --json`.
        pending: reads what RDS has still to change in the instance, which any immediate modification makes too (RDS API reference,
            ModifyDBInstance, ApplyImmediately).
    """
    for step in preview.get("steps") or ():
        if step["op"] == "update" and step["urn"].split("::")[2].endswith(DATABASE):
            yield from _explain(step)
            is_immediate = ((step.get("newState") or {}).get("inputs") or {}).get("applyImmediately")
            waiting = ", ".join(f"{key}: {value}" for key, value in pending().items()) if is_immediate else ""
            if waiting:
                yield f"RDS makes what the database waits for at once as well ({waiting}): MLflow is offline for minutes"


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
