"""The settings that would take an offer: the changed group of an environment's file, and the quotas that no longer fit it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.lifecycle.capacity.judging import Judged
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import BlockOffering, FutureReservation, OnDemand, Reserved, Spot
from infra.spec.capacity import zones_of
from infra.spec.errors import SettingsError
from infra.spec.settings.loading import from_mapping
from infra.spec.sharing import devices_per_gpu
from infra.spec.yaml_text import inline

Tree = dict[str, Any]

_STAND_IN = "cr-00000000000000000"
_UNKNOWN_ID = "cr-…"
"""What the file says until the purchase has printed the ID. The settings refuse it, so that nobody brings it up."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of an environment's file.

    Attributes:
        group: the group's entry in `gpu_groups`, as lines of YAML; empty if the group takes the offer as it is.
        quotas: `teams[].gpus` of each team whose quota has to shrink with the group, as YAML by the team's name.
        refusal: why the settings would be refused; then there is no change to make.
    """

    group: tuple[str, ...] = ()
    quotas: Mapping[str, str]
    refusal: str = ""


def change_for(judged: Judged, need: Need, document: Mapping[str, Any], *, file: str) -> Change:
    """The change that takes an offer, which the settings' rules accept.

    Args:
        judged: the offer.
        need: what it is for.
        document: the environment's file, parsed.
        file: its name.
    """
    tree: Tree = copy.deepcopy(dict(document))
    index = next(i for i, one in enumerate(tree["gpu_groups"]) if one["name"] == need.group.name)
    before: Tree = tree["gpu_groups"][index]
    after = _changed(before, judged, need, tuple(tree["network"]["availability_zones"]))
    if after == before:
        return Change(quotas={})
    tree["gpu_groups"][index] = after
    quotas = _shrunk_quotas(tree, need, nodes=after["max_size"])
    try:
        from_mapping(tree, file=file)
    except SettingsError as error:
        return Change(quotas={}, refusal=str(error.args[0]))
    return Change(group=tuple(_lines(after)), quotas={name: inline(gpus) for name, gpus in quotas.items()})


def _changed(group: Tree, judged: Judged, need: Need, network: tuple[str, ...]) -> Tree:
    offer = judged.offer
    match offer:
        case OnDemand():
            return _launched(group, judged, need, network, capacity=None)
        case Spot():
            return _launched(group, judged, need, network, capacity=_spot(group, offer))
        case Reserved(kind="capacity_block"):
            return _block(group, offer.id, judged.zones[0], offer.ends, nodes=offer.total)
        case BlockOffering():
            return _block(group, _STAND_IN, offer.zone, offer.ends, nodes=offer.instances)
        case Reserved():
            return _reservation(group, offer.id, offer.zone, need, total=offer.total, placement=offer.placement_group)
        case FutureReservation():
            return _reservation(group, _STAND_IN, judged.zones[0], need, total=need.nodes, placement="")


def _launched(group: Tree, judged: Judged, need: Need, network: tuple[str, ...], *, capacity: Tree | None) -> Tree:
    """A group whose nodes EC2 launches where it has them: in the group's zones, if the offer is in one of them."""
    changed = {**_without(group, "capacity"), **_sizes(group, max(group["max_size"], need.nodes))}
    if not set(zones_of(need.group, network)) & set(judged.zones):
        changed["availability_zones"] = list(judged.zones[:1])
    was_launched = need.group.capacity.kind == (capacity or {"kind": "on_demand"})["kind"]
    if was_launched and "capacity" in group:
        changed["capacity"] = group["capacity"]
    elif capacity is not None:
        changed["capacity"] = capacity
    # A reservation's placement group is no longer the one that `cluster` means, but the stack makes one of its own.
    return _ordered(group, changed)


def _spot(group: Tree, offer: Spot) -> Tree:
    capacity: Tree = {"kind": "spot"}
    if group.get("efa"):
        capacity["allow_efa"] = True
    elif offer.instance_types[1:]:
        capacity["instance_types"] = list(offer.instance_types[1:])
    return capacity


def _reservation(group: Tree, id_: str, zone: str, need: Need, *, total: int, placement: str) -> Tree:
    """A group in a reservation, which bounds its size: a targeted launch beyond it fails."""
    capacity: Tree = {"kind": "reservation", "id": id_, "availability_zone": zone}
    if placement:
        capacity["placement_group"] = placement
    largest = min(total, max(group["max_size"], need.nodes))
    changed = {**_without(group, "availability_zones", "placement"), **_sizes(group, largest), "capacity": capacity}
    if placement:
        changed["placement"] = "cluster"
    return _ordered(group, changed)


def _block(group: Tree, id_: str, zone: str, ends: datetime | None, *, nodes: int) -> Tree:
    """A group in a block, which is in an UltraCluster already and starts without nodes."""
    kept = _without(group, "availability_zones", "placement", "topology", "min_size", "desired_size")
    assert ends is not None, "a block ends"
    end = ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    capacity = {"kind": "capacity_block", "id": id_, "availability_zone": zone, "ends": end}
    return _ordered(group, {**kept, "max_size": nodes, "capacity": capacity})


def _sizes(group: Tree, largest: int) -> Tree:
    """The sizes of a group of at most so many nodes; one whose nodes Kueue assigns has a fixed size."""
    if group.get("topology", "none") != "none":
        return dict.fromkeys(("min_size", "desired_size", "max_size"), largest)
    smaller = {size: largest for size in ("min_size", "desired_size") if group.get(size, 0) > largest}
    return {"max_size": largest, **smaller}


def _without(group: Tree, *keys: str) -> Tree:
    return {key: value for key, value in group.items() if key not in keys}


def _ordered(before: Tree, after: Tree) -> Tree:
    """The keys in the order of the file; new ones last."""
    kept = [key for key in before if key in after]
    return {key: after[key] for key in (*kept, *(key for key in after if key not in before))}


def _shrunk_quotas(tree: Tree, need: Need, *, nodes: int) -> dict[str, dict[str, int]]:
    """Reduce the teams' quotas of the group in proportion, where they add up to more than it then has; returns those changed."""
    name, gpu = need.group.name, need.instance.gpu
    assert gpu is not None, "a GPU group has GPUs"
    total = nodes * gpu.count * devices_per_gpu(need.group.sharing, gpu)
    teams = [team for team in tree.get("teams", ()) if team.get("gpus", {}).get(name)]
    assigned = sum(team["gpus"][name] for team in teams)
    if assigned <= total:
        return {}
    for team in teams:
        team["gpus"] = {**team["gpus"], name: team["gpus"][name] * total // assigned}
    return {team["name"]: team["gpus"] for team in teams}


def _lines(group: Tree) -> list[str]:
    """The entry of a list, a key a line. An ID that the purchase prints is a placeholder until then."""
    lines = [f"{key}: {inline(value)}" for key, value in group.items()]
    marked = [line.replace(_STAND_IN, _UNKNOWN_ID) for line in lines]
    return [f"{'  ' if number else '- '}{line}" for number, line in enumerate(marked)]
