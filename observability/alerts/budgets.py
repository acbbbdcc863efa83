"""Rules about the budgets of teams, `teams[].daily_usd` of the stack's settings.

They compare what the runs of a team count themselves (`observability.alerts.run_cost`). The AWS budget of the environment
(`infra.aws.budget`) has the rest: idle nodes, storage, traffic.
"""

from __future__ import annotations

from infra.spec.cluster_names import TEAM_BUDGETS
from observability.alerts.model import Alert, Given, Group, Severity
from observability.alerts.run_cost import SPENT_TODAY

BUDGETS = Group(
    name="team-budgets",
    given=(Given(name=TEAM_BUDGETS, labels=("team",)),),
    alerts=(
        Alert(
            name="TeamBudgetSpent",
            expression=f"{SPENT_TODAY} > on (team) {TEAM_BUDGETS}",
            wait="15m",
            severity=Severity.TICKET,
            summary='The runs of team {{ $labels.team }} have cost ${{ $value | printf "%.2f" }} in 24 hours, more than its budget.',
            action="See which of its jobs cost the most; stop what is not needed, or raise teams[].daily_usd.",
        ),
    ),
)
"""Only in environments where a team has a budget."""
