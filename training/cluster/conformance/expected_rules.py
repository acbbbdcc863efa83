"""The rules that a stack's Prometheus must have, from the release's own catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from infra.spec.outputs import StackOutputs
from observability.alerts.budgets import BUDGETS
from observability.alerts.catalog import GROUPS
from observability.alerts.cost import COST
from observability.alerts.gpu import GPU
from observability.alerts.nodes import GPU_NODE_RULES
from observability.alerts.services import GPU_SERVICES, LOGS

_OF_GPUS = (GPU, GPU_NODE_RULES, GPU_SERVICES, COST)
"""Groups that only a stack with GPU groups has."""


def expected_rules(outputs: StackOutputs) -> Mapping[str, frozenset[str]]:
    """Names of the rules by the name of their group.

    The rules about budgets are left out: the outputs do not say whether a team has one.
    """
    absent = [
        BUDGETS,
        *(() if outputs.gpu_groups else _OF_GPUS),
        *(() if outputs.logs.destination != "none" else (LOGS,)),
    ]
    return {
        group.name: frozenset(rule.name for rule in group.rules)
        for group in GROUPS
        if group.name not in {one.name for one in absent}
    }
