"""What a job's parts of nodes cost, and the choice that Kueue has.

A pod pays for the largest share that it requests of any resource of its node: what is left of the others is of no use to another pod of
the same kind. Prices are the catalogue's, on demand. Spot nodes cost less; a reservation is billed whether it is used or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.spec.node_labels import CAPACITY_LABEL
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.request import Target
from platform_charts.jobs.resources import gpu_share, node_share


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a pod requests of its node."""

    cpus: float
    memory_gib: float
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class PodPrice:
    """The price of one pod's part of its node.

    Attributes:
        instance_type: of the node; empty if it is not known.
        usd_per_hour: US dollars per hour; None if the node has no price.
        note: why it has none, or what the price assumes; empty if it is exact.
    """

    instance_type: str
    usd_per_hour: float | None
    note: str = ""


def price_of_pod(wanted: Wanted, group: GpuGroupOutput | None, target: Target) -> PodPrice:
    """The price of a pod on a node of a GPU group, or, without one, on a head node."""
    instance = target.outputs.head_instance_type if group is None else group.instance_type
    if instance is None:
        return PodPrice(
            instance_type="", usd_per_hour=None, note="the stack's outputs do not name the type of its head nodes"
        )
    whole, note = _node_price(instance, group, target)
    if whole is None:
        return PodPrice(instance_type=instance, usd_per_hour=None, note=note)
    return PodPrice(instance_type=instance, usd_per_hour=whole * _part(wanted, instance, group, target), note=note)


@dataclass(frozen=True, kw_only=True)
class JobPrice:
    """What a job's driver is told of its price, in US dollars per hour.

    Attributes:
        fixed: of what the job holds all the time: the head, and the workers unless it is elastic.
        per_worker: of each worker of an elastic job; 0 for another job.
    """

    fixed: float
    per_worker: float = 0.0


def job_price(placement: Placement, target: Target, *, head: Wanted) -> JobPrice | None:
    """The price of a job's head and workers; None if one of them has no price.

    If Kueue may choose among several groups, the workers cost what they do in the most expensive one that has a price.
    """
    wanted = Wanted(cpus=placement.share.cpus, memory_gib=placement.share.memory_gib, gpus=placement.gpus)
    possible = [price_of_pod(wanted, group, target).usd_per_hour for group in placement.groups or (None,)]
    worker = max((price for price in possible if price is not None), default=None)
    of_head = price_of_pod(head, None, target).usd_per_hour
    if worker is None or of_head is None:
        return None
    if placement.sizes:
        return JobPrice(fixed=of_head, per_worker=worker / (placement.gpus or 1))
    return JobPrice(fixed=of_head + placement.pods * worker)


def _node_price(instance: str, group: GpuGroupOutput | None, target: Target) -> tuple[float | None, str]:
    """US dollars per hour of a whole node, with a note."""
    catalog = target.catalog
    if group is not None and group.drain_before is not None:
        return None, "prepaid, in a Capacity Block"
    if target.outputs.region != catalog.prices.region:
        return None, f"the price table is of {catalog.prices.region}, the stack is in {target.outputs.region}"
    price = catalog.find_instance(instance).usd_per_hour
    if price is None:
        return None, f"infra/spec/catalog.yaml has no price of {instance}; `make prices` looks it up"
    is_spot = group is not None and group.capacity_type == "SPOT"
    return price, "upper bound: spot is billed at or below the on-demand price" if is_spot else ""


def _part(wanted: Wanted, instance: str, group: GpuGroupOutput | None, target: Target) -> float:
    """The largest share that a pod requests of a resource that a node leaves to jobs, at most 1."""
    if group is None:
        room, gpus = node_share(instance, catalog=target.catalog), 0
    else:
        room = gpu_share(group, catalog=target.catalog).times(group.gpus_per_node)
        gpus = group.gpus_per_node * group.devices_per_gpu
    shares = [wanted.cpus / room.cpus, wanted.memory_gib / room.memory_gib, wanted.gpus / gpus if gpus else 0.0]
    return min(1.0, max(shares))


def usd_per_hour(placement: Placement, target: Target) -> float | None:
    """US dollars per hour of a job's GPUs, at the catalogue's on-demand price, in the most expensive of its groups.

    None if there is no such price: for a job without GPUs; for Capacity Blocks, which are prepaid; and outside the region
    of the price table. The head is not in it, and `job_price` has it.
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
    price, _ = _node_price(group.instance_type, group, target)
    return None if price is None else price * placement.pods * placement.gpus / group.gpus_per_node
