"""How many vCPUs the account may still start, on demand and spot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.account.instance_supply import read_quota
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import NotKnown, Quota, Reserved
from infra.lifecycle.capacity.sources.asking import ask
from infra.spec.catalog import Catalog, QuotaFamily

Market = Literal["on_demand", "spot"]

_STANDARD, _GRAPHICS = tuple("acdhimrtz"), ("g", "vt")
_PREFIXES: Mapping[Market, Mapping[QuotaFamily, tuple[str, ...]]] = {
    "on_demand": {
        "standard": _STANDARD,
        "gpu_graphics": _GRAPHICS,
        **dict.fromkeys(("gpu_training", "gpu_training_p5", "gpu_training_p6"), ("p",)),
    },
    "spot": {
        "standard": _STANDARD,
        "gpu_graphics": _GRAPHICS,
        "gpu_training": ("p2", "p3", "p4"),
        "gpu_training_p5": ("p5",),
    },
}
"""How the names of the instance types begin that count against each quota (EC2 user guide, "Amazon EC2 instance type quotas" and
"Spot Instance quotas")."""

_LIFECYCLES: Mapping[Market, str | None] = {"on_demand": None, "spot": "spot"}
"""`InstanceLifecycle` of the instances that count. Those of a Capacity Block count against neither quota."""


def quota_of(
    aws: Clients, region: str, need: Need, catalog: Catalog, *, market: Market, reserved: Iterable[Reserved] = ()
) -> Quota | NotKnown:
    """The quota of the need's instance type and what of it is in use.

    Args:
        aws: the account.
        region: AWS region.
        need: the need.
        catalog: the instance catalogue.
        market: on demand or spot.
        reserved: what the account has reserved in the region; instances that do not run count against the on-demand quota
            (EC2 user guide, "Capacity Reservation limitations and restrictions").
    """
    code = getattr(catalog.quotas[need.family.quota], market)
    if code is None:
        return NotKnown(f"AWS lists no {market} quota for {need.instance.family}")
    found = ask("servicequotas:GetServiceQuota", lambda: read_quota(aws.of("service-quotas", region), code))
    if isinstance(found, NotKnown):
        return found
    prefixes = _PREFIXES[market][need.family.quota]
    running = ask("ec2:DescribeInstances", lambda: _running(aws, region, prefixes, market))
    if isinstance(running, NotKnown):
        return running
    unused = [
        one.available * catalog.instances[one.instance_type].vcpus
        for one in reserved
        if market == "on_demand" and _counts(one, prefixes, catalog)
    ]
    used = sum(_vcpus(one, catalog) for one in running) + sum(unused)
    return Quota(code=code, name=str(found["QuotaName"]), limit=int(found["Value"]), used=used)


def _running(aws: Clients, region: str, prefixes: Iterable[str], market: Market) -> list[Mapping[str, Any]]:
    pages = aws.of("ec2", region).get_paginator("describe_instances")
    filters = [
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
        {"Name": "instance-type", "Values": [f"{prefix}*" for prefix in prefixes]},
    ]
    return [
        one
        for page in pages.paginate(Filters=filters)
        for reservation in page["Reservations"]
        for one in reservation["Instances"]
        if one.get("InstanceLifecycle") == _LIFECYCLES[market]
    ]


def _vcpus(instance: Mapping[str, Any], catalog: Catalog) -> int:
    known = catalog.instances.get(instance["InstanceType"])
    if known is not None:
        return known.vcpus
    options = instance["CpuOptions"]
    return int(options["CoreCount"]) * int(options["ThreadsPerCore"])


def _counts(one: Reserved, prefixes: tuple[str, ...], catalog: Catalog) -> bool:
    is_ours = one.kind == "reservation" and not one.owner and one.state == "active"
    return is_ours and one.instance_type.startswith(prefixes) and one.instance_type in catalog.instances
