"""Recording rules with values of the stack's settings, for the rules that compare metrics with them: prices and budgets.

Each group of rules gets those that it uses, before its own (`observability.alerts.model.Given`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.spec.capacity import CapacityBlock
from infra.spec.catalog import Catalog
from infra.spec.cluster_names import NODE_PRICES, TEAM_BUDGETS
from infra.spec.manifest import Manifest
from infra.spec.settings.stack import StackSettings


def settings_rules(settings: StackSettings, *, catalog: Catalog) -> Mapping[str, tuple[Manifest, ...]]:
    """The rules by the name of the group that uses them."""
    return {"gpu-cost": tuple(_node_prices(settings, catalog)), "team-budgets": tuple(_team_budgets(settings))}


def _node_prices(settings: StackSettings, catalog: Catalog) -> Iterator[Manifest]:
    """On-demand prices; none outside the region of the price table, and none for Capacity Blocks, which are prepaid."""
    if settings.aws.region != catalog.prices.region:
        return
    for group in settings.gpu_groups:
        if isinstance(group.capacity, CapacityBlock):
            continue
        for name in group.instance_types:
            price = catalog.find_instance(name).usd_per_hour
            if price is not None:
                yield _constant(NODE_PRICES, price, group=group.name, instance_type=name)


def _team_budgets(settings: StackSettings) -> Iterator[Manifest]:
    for team in settings.teams:
        if team.daily_usd is not None:
            yield _constant(TEAM_BUDGETS, team.daily_usd, team=team.name)


def _constant(name: str, value: float, **labels: str) -> Manifest:
    return {"record": name, "expr": f"vector({value})", "labels": labels}
