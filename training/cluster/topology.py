"""What a job waits for that Kueue assigns nodes to: the topology's name says nothing to a team, its group and pods do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.spec.manifest import Manifest
from infra.spec.node_labels import GPU_RESOURCE, GROUP_LABEL

_FEW_NODES = re.compile(
    r'topology "[^"]+" (?:allows to fit only (?P<few>\d+) out of|doesn\'t allow to fit any of) \d+ (?:pod|slice)\(s\)'
)
"""How many pods of a pod set the nodes of a group have room for (Kueue 0.19.2, tas_flavor_snapshot.go, `notFitMessage`)."""

NO_ROOM = "no room yet for"
_POD_SET = re.compile(r"pod set (\S+):")


def with_needs(message: str, workload: Manifest) -> str:
    """Kueue's message with the pods that need nodes, and their group, in place of a topology.

    Args:
        message: of the condition `QuotaReserved`.
        workload: the Workload that has it.
    """
    needs = needs_of(message, workload)
    return _FEW_NODES.sub(
        lambda found: f"room for {found['few']} of {needs}" if found["few"] else f"{NO_ROOM} {needs}", message
    )


def needs_of(message: str, workload: Manifest) -> str:
    """What the pod set that a message names needs, e.g. `its 2 pods with 4 GPUs each on the nodes of group h100`."""
    named = _POD_SET.search(message)
    sets = {one["name"]: one for one in workload["spec"].get("podSets", ())}
    if named is None or named[1] not in sets:
        return "its workers on the nodes of its group"
    count, pod = sets[named[1]]["count"], sets[named[1]]["template"]["spec"]
    gpus = sum(int(one.get("resources", {}).get("requests", {}).get(GPU_RESOURCE, 0)) for one in pod["containers"])
    pods = f"its {count} pods" if count > 1 else "its pod"
    each = f" with {gpus} GPU{'s' * (gpus != 1)}{' each' * (count > 1)}" if gpus else ""
    groups = list(_groups(pod))
    where = f"group{'s' * (len(groups) > 1)} {', '.join(groups)}" if groups else "its group"
    return f"{pods}{each} on the nodes of {where}"


def _groups(pod: Manifest) -> Iterator[str]:
    """The groups that a pod may run in."""
    selected = pod.get("nodeSelector", {}).get(GROUP_LABEL)
    if selected:
        yield selected
        return
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for one in term.get("matchExpressions", ()):
            if one["key"] == GROUP_LABEL and one["operator"] == "In":
                yield from one["values"]
