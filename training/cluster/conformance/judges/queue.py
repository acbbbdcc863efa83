"""Judges the admission of the suite's job by Kueue."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from training.cluster.conformance.check import Finding, judged
from training.cluster.objects import has_condition


def gang(workload: Manifest | None, *, waited: str) -> Finding:
    """All pods of the job were admitted at once.

    Args:
        workload: its Workload, as it was when it was admitted, else as it was last; None if there was none.
        waited: why it was not admitted; empty if it was.
    """
    expected = "one admission of all pod sets"
    if workload is None:
        return judged(
            holds=False, expected=expected, found=f"Kueue has no Workload of the job{f': {waited}' * bool(waited)}"
        )
    wanted = {one["name"]: int(one["count"]) for one in workload["spec"]["podSets"]}
    admission = (workload.get("status") or {}).get("admission") or {}
    given = {
        one["name"]: int(one.get("count", wanted.get(one["name"], 0))) for one in admission.get("podSetAssignments", ())
    }
    if not has_condition(workload, "Admitted"):
        return judged(holds=False, expected=expected, found=f"not admitted: {waited or 'Kueue gives no reason'}")
    found = ", ".join(f"{name} {given.get(name, 0)} of {count}" for name, count in wanted.items())
    return judged(holds=given == wanted, expected=expected, found=found)
