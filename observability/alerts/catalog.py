"""All groups of rules, in the order of their file."""

from __future__ import annotations

from observability.alerts.budgets import BUDGETS
from observability.alerts.checkpoints import CHECKPOINTS
from observability.alerts.cost import COST
from observability.alerts.goodput import GOODPUT
from observability.alerts.gpu import GPU
from observability.alerts.model import Alert, Group
from observability.alerts.network import NETWORK
from observability.alerts.nodes import GPU_NODE_RULES, NODES
from observability.alerts.queue import QUEUE
from observability.alerts.run_cost import RUN_COST
from observability.alerts.searches import SEARCHES
from observability.alerts.services import GPU_SERVICES, LOGS, SERVICES
from observability.alerts.training import TRAINING

GROUPS: tuple[Group, ...] = (
    TRAINING,
    GOODPUT,
    RUN_COST,
    BUDGETS,
    CHECKPOINTS,
    SEARCHES,
    QUEUE,
    NODES,
    NETWORK,
    SERVICES,
    GPU,
    GPU_NODE_RULES,
    GPU_SERVICES,
    COST,
    LOGS,
)

ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
