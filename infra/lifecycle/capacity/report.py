"""What was found, for the terminal: a table of the offers, and for each what to run and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.table import Table

from infra.lifecycle.capacity.change import Change, change_for
from infra.lifecycle.capacity.finder import Findings
from infra.lifecycle.capacity.judging import Judged, Place
from infra.lifecycle.capacity.need import Need, utc
from infra.lifecycle.capacity.offers import NAMES, BlockOffering, Reserved
from infra.lifecycle.capacity.purchase import purchase_command


@dataclass(frozen=True, kw_only=True)
class Way:
    """An offer and how to take it.

    Attributes:
        judged: the offer.
        command: command of the AWS CLI that buys or reserves it; empty if there is nothing to buy.
        change: the settings that take it; None where the environment's groups cannot use it.
    """

    judged: Judged
    command: str
    change: Change | None


def ways(findings: Findings, document: Mapping[str, object], *, file: str, place: Place) -> tuple[Way, ...]:
    """Every offer with how to take it, best first.

    Args:
        findings: the offers.
        document: the environment's file, parsed.
        file: its name.
        place: the environment.
    """
    need = findings.need
    return tuple(
        Way(
            judged=one,
            command=purchase_command(one, need, now=place.now),
            change=change_for(one, need, document, file=file) if _can_be_used(one, place) else None,
        )
        for one in findings.offers
    )


def _can_be_used(judged: Judged, place: Place) -> bool:
    """Whether the network reaches it, and nodes may be launched into it."""
    offer = judged.offer
    is_one_block = not isinstance(offer, BlockOffering) or offer.blocks == 1
    fits = not isinstance(offer, Reserved) or not offer.misfit
    return is_one_block and fits and offer.region == place.region and bool(set(judged.zones) & set(place.zones))


def headline(need: Need, *, environment: str, regions: tuple[str, ...]) -> str:
    """What was looked for, e.g. `8 x p5.48xlarge (64 H100) for 24 h from …`."""
    gpu = need.instance.gpu
    gpus = f" ({need.nodes * gpu.count} {gpu.model})" if gpu else ""
    return (
        f"{need.nodes} x {need.instance.name}{gpus} for {need.hours:g} h from {utc(need.starts)} in {', '.join(regions)}: "
        f"{need.gpu_hours:,.0f} GPU hours, for group {need.group.name} of {environment}"
    )


def warnings(need: Need) -> Iterator[str]:
    """What the user should know before the table."""
    if need.nodes > need.group.max_size:
        yield f"group {need.group.name} has max_size: {need.group.max_size}; the changes below raise it to {need.nodes}"


def offer_table(found: tuple[Way, ...]) -> Table:
    """The offers, best first; narrow enough for a terminal of 120 columns."""
    table = Table(title="Best first", title_justify="left")
    for heading in ("", "way", "where", "from, UTC", "nodes until", "certainty", "USD more", "USD/GPU h"):
        is_number = heading in {"", "USD more", "USD/GPU h"}
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for number, one in enumerate((way.judged for way in found), start=1):
        cost = one.cost
        table.add_row(
            str(number),
            NAMES[one.offer.kind],
            _where(one.zones),
            _minute(one.starts),
            _minute(one.ends) if one.ends else "",
            f"{one.certainty}, short" if one.shortfalls else str(one.certainty),
            "unknown" if cost.usd is None else f"{cost.usd:,.0f}",
            "" if cost.per_gpu_hour is None else f"{cost.per_gpu_hour:,.2f}",
        )
    return table


def _where(zones: tuple[str, ...]) -> str:
    """Zones of one region, e.g. `us-east-1a b c`; a Local Zone has its whole name."""
    region = zones[0][:-1]
    return " ".join((zones[0], *(zone[-1] if zone[:-1] == region else zone for zone in zones[1:])))


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%b %d %H:%M}"


def note_lines(found: tuple[Way, ...]) -> Iterator[str]:
    """What each offer lacks, and what else to know about it; offers with the same notes share a line."""
    shared: dict[str, list[int]] = {}
    for number, one in enumerate((way.judged for way in found), start=1):
        short = f"SHORT: {'; '.join(one.shortfalls)}. " if one.shortfalls else ""
        shared.setdefault(f"{short}{'; '.join(one.notes)}", []).append(number)
    for text, numbers in shared.items():
        yield f"  {', '.join(map(str, numbers))}: {text}"


def absent_lines(findings: Findings) -> Iterator[str]:
    """The kinds of capacity that have nothing to offer, each with the reason."""
    if findings.absent:
        yield "Nothing from:"
    for one in findings.absent:
        yield f"  {NAMES[one.kind]}, {one.region}: {one.why}"


def instructions(found: tuple[Way, ...], need: Need, *, file: str) -> Iterator[str]:
    """How to take each offer; offers that are taken the same way share an entry."""
    shared: dict[tuple[str, ...], list[int]] = {}
    for number, way in enumerate(found, start=1):
        shared.setdefault(tuple(_entry(way, need, file=file)), []).append(number)
    for lines, numbers in shared.items():
        if lines:
            yield ""
            yield f"To take {', '.join(map(str, numbers))}:"
            yield from (f"  {line}" for line in lines)


def _entry(way: Way, need: Need, *, file: str) -> Iterator[str]:
    kind = way.judged.offer.kind
    if way.command and kind != "on_demand":
        yield _BUY[kind]
        yield f"  {way.command}"
    if way.change is not None:
        yield from _settings(way.change, need, file=file)
    if way.command and kind == "on_demand":
        yield "to be sure of it, reserve it: this succeeds or fails at once, and is billed from then on, used or not:"
        yield f"  {way.command}"


_BUY = {"block_offering": "buy it:", "future_reservation": "request it:"}


def _settings(change: Change, need: Need, *, file: str) -> Iterator[str]:
    name = need.group.name
    if change.refusal:
        yield f"the settings refuse it for group {name}:"
        yield from (f"  {line}" for line in change.refusal.splitlines())
    elif not change.group:
        yield f"group {name} takes it as it is"
    else:
        yield f"replace group {name} in {file}, then `make up`:"
        yield from (f"  {line}" for line in change.group)
    for team, gpus in change.quotas.items():
        yield f"  and of team {team}: gpus: {gpus}"
