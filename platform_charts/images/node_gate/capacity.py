"""Node groups for which AWS has no capacity, and the taint that makes Kueue pass over them; pure functions.

Kueue 0.19 tries a job that it evicted, because its pods were not ready in time, in the same order of flavors again
(scheduler.go: an admitted job has no LastAssignment), so it would wait for the same group. A taint on the flavor, which
only jobs without another group tolerate, makes it try the next one. Running jobs and nodes do not notice it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

_LONGEST_AGE = timedelta(minutes=10)
"""Age from which the autoscaler's status counts as abandoned; it writes one in every loop, of about 10 seconds."""

_REFRESH = timedelta(minutes=1)

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def groups_in_backoff(status: str, parts: Mapping[str, Sequence[str]], *, now: datetime) -> set[str]:
    """Groups that the autoscaler has stopped enlarging in every zone, because AWS did not launch instances.

    Args:
        status: `status` of the autoscaler's ConfigMap (cluster-autoscaler 1.35, clusterstate/api/types.go); may be empty.
        parts: names of the managed node groups of each group. EKS names the Auto Scaling group of a managed node group
            eks-NAME-UUID, and Pulumi appends a dash and 7 digits to NAME.
        now: the time, with its zone.
    """
    try:
        document = yaml.safe_load(status)
        is_old = now - _time(document["time"]) > _LONGEST_AGE
        states = {str(one["name"]): one["scaleUp"]["status"] for one in document["nodeGroups"]}
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return set()
    if is_old:
        return set()
    found = set()
    for group, names in parts.items():
        pattern = re.compile(rf"eks-(?:{'|'.join(map(re.escape, names))})(?:-[0-9a-f]{{7}})?-{_UUID}")
        of_group = [state for name, state in states.items() if pattern.fullmatch(name)]
        if of_group and all(state == "Backoff" for state in of_group):
            found.add(group)
    return found


def patch_of(
    flavor: Mapping[str, Any], *, is_failing: bool, now: datetime, hold: timedelta, taint: Mapping[str, str]
) -> dict[str, Any] | None:
    """Merge patch of a ResourceFlavor that sets or removes the taint; None if nothing changes.

    The taint stays for `hold` after the last failure: longer than Kueue gives the pods of an admitted job, so that a job
    which waits for the group is tried in the next one.
    """
    metadata, taints = flavor["metadata"], flavor["spec"].get("nodeTaints", [])
    key = f"{taint['key']}-until"
    noted = metadata.get("annotations", {}).get(key)
    until = datetime.fromisoformat(noted) if noted else None
    if is_failing and (until is None or now + hold - until > _REFRESH):
        until = now + hold
    is_closed = until is not None and until > now
    others = [one for one in taints if one["key"] != taint["key"]]
    wanted = [*others, dict(taint)] if is_closed else others
    note = until.isoformat() if until is not None and is_closed else None
    if wanted == taints and note == noted:
        return None
    return {
        "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {key: note}},
        "spec": {"nodeTaints": wanted},
    }


def _time(text: str) -> datetime:
    """The time of a status, which the autoscaler writes in UTC as Go prints it: 2027-01-01 12:00:00.123456789 +0000 UTC."""
    return datetime.strptime(text[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
