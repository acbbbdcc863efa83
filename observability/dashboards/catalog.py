"""All dashboards, in the order of the documentation."""

from __future__ import annotations

from observability.dashboards.boards.checkpoints import CHECKPOINTS_DASHBOARD
from observability.dashboards.boards.data import DATA
from observability.dashboards.boards.fleet import FLEET
from observability.dashboards.boards.gpu import GPU_DASHBOARD
from observability.dashboards.boards.platform import PLATFORM
from observability.dashboards.boards.queue import QUEUE_DASHBOARD
from observability.dashboards.boards.ray import RAY
from observability.dashboards.boards.run import RUN_DASHBOARD
from observability.dashboards.boards.runbooks import runbooks
from observability.dashboards.boards.search import SEARCH_DASHBOARD
from observability.dashboards.model import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    FLEET,
    RUN_DASHBOARD,
    GPU_DASHBOARD,
    DATA,
    CHECKPOINTS_DASHBOARD,
    QUEUE_DASHBOARD,
    SEARCH_DASHBOARD,
    RAY,
    PLATFORM,
)
"""Those with queries."""


def all_dashboards() -> tuple[Dashboard, ...]:
    """Every dashboard; that of the runbooks is read from their document."""
    return (*DASHBOARDS, runbooks())
