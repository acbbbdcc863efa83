"""The instance types that a spot group may use for a need: AWS interrupts a group less that has more of them."""

from __future__ import annotations

from infra.lifecycle.capacity.need import Need
from infra.spec.capacity import Spot
from infra.spec.catalog import Catalog
from infra.spec.launch_rules import shape_difference

_DEAREST = 1.5
"""List price up to which another type is proposed, as a multiple of that of the group's type: AWS may choose any of them."""


def spot_types(need: Need, region: str, catalog: Catalog) -> tuple[str, ...]:
    """The group's own type first.

    Those of a spot group are what its settings say. To another group, all types of the region with the same GPUs are
    proposed, unless it has EFA, whose interfaces are those of one type.
    """
    if isinstance(need.group.capacity, Spot):
        return need.group.instance_types
    first = need.instance
    if need.group.efa or first.usd_per_hour is None:
        return (first.name,)
    limit = first.usd_per_hour * _DEAREST
    others = [
        one
        for one in catalog.instances.values()
        if one.name != first.name
        and shape_difference(one, first) is None
        and one.usd_per_hour is not None
        and one.usd_per_hour <= limit
        and region in catalog.family_of(one.name).regions
    ]
    return (first.name, *(one.name for one in sorted(others, key=lambda one: one.usd_per_hour or 0.0)))
