"""What the GPUs of a job cost, and the choice that Kueue has."""

from __future__ import annotations

from infra.spec.node_labels import CAPACITY_LABEL
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.request import Target


def usd_per_hour(placement: Placement, target: Target) -> float | None:
    """US dollars per hour of a job's parts of nodes, at the catalogue's on-demand price, in the most expensive of its groups.

    None if there is no such price: for nodes without GPUs, which also run the platform; for Capacity Blocks, which are
    prepaid; and outside the region of the price table. Spot nodes cost less.
    """
    prices = (_price(placement, group, target) for group in placement.groups)
    return max((price for price in prices if price is not None), default=None)


def describe_choice(placement: Placement, target: Target) -> str:
    """The groups that Kueue tries, in order, with their prices, and those that it may not use, with the reasons."""
    lines = [
        f"  {number}. {group.name} ({group.instance_type}, {_capacity(group)}){_cost(placement, group, target)}"
        for number, group in enumerate(placement.groups, start=1)
    ]
    fabrics = [group.name for group in placement.groups if group.efa_per_node]
    if 0 < len(fabrics) < len(placement.groups) and placement.pods > 1:
        lines.append(f"  the pods have no EFA, because not all groups do; to use it, name one of {', '.join(fabrics)}")
    left_out = [f"  left out: {reason}" for reason in placement.left_out]
    return "\n".join(("the queue takes the first of these groups that has room:", *lines, *left_out))


def _capacity(group: GpuGroupOutput) -> str:
    return group.labels.get(CAPACITY_LABEL, group.capacity_type).replace("_", " ").lower()


def _cost(placement: Placement, group: GpuGroupOutput, target: Target) -> str:
    price = _price(placement, group, target)
    if group.drain_before is not None:
        return ", prepaid"
    return "" if price is None else f", {'below' if group.capacity_type == 'SPOT' else 'about'} ${price:,.2f} an hour"


def _price(placement: Placement, group: GpuGroupOutput, target: Target) -> float | None:
    catalog = target.catalog
    if group.drain_before is not None or target.outputs.region != catalog.prices.region:
        return None
    price = catalog.find_instance(group.instance_type).usd_per_hour
    return None if price is None else price * placement.pods * placement.gpus / group.gpus_per_node
