"""What is looked for: nodes of a group, for some hours, from a day on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from infra.spec.catalog import Catalog, Family, InstanceType
from infra.spec.errors import SettingsError
from infra.spec.section import nearest
from infra.spec.settings.nodes import GpuGroup
from infra.spec.settings.stack import StackSettings


@dataclass(frozen=True, kw_only=True)
class Need:
    """Nodes of a group's instance type.

    Attributes:
        group: the GPU group that would get them.
        instance: its instance type.
        family: facts about the type's family.
        nodes: number of nodes.
        hours: how long they are needed.
        starts: the earliest start, in UTC.
    """

    group: GpuGroup
    instance: InstanceType
    family: Family
    nodes: int
    hours: float
    starts: datetime

    @property
    def gpu_hours(self) -> float:
        """GPU hours of all nodes."""
        return self.nodes * self.instance.gpus * self.hours

    @property
    def vcpus(self) -> int:
        """VCPUs of all nodes, which count against the account's quotas."""
        return self.nodes * self.instance.vcpus

    @property
    def duration(self) -> timedelta:
        """`hours` as a time span."""
        return timedelta(hours=self.hours)


def make_need(
    settings: StackSettings, catalog: Catalog, *, group: str | None, nodes: int, hours: float, starts: datetime
) -> Need:
    """The need for nodes of a group; without a name, of the only GPU group.

    Raises:
        SettingsError: the environment has no such group, or several and none is named.
    """
    chosen = _group(settings.gpu_groups, group, environment=settings.environment.name)
    instance = catalog.find_instance(chosen.instance_type)
    return Need(
        group=chosen,
        instance=instance,
        family=catalog.families[instance.family],
        nodes=nodes,
        hours=hours,
        starts=starts,
    )


def _group(groups: Iterable[GpuGroup], name: str | None, *, environment: str) -> GpuGroup:
    known = {group.name: group for group in groups}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name in known:
        return known[name]
    if not known:
        raise SettingsError(f"{environment} has no GPU group", remedy="add one to gpu_groups of its file")
    if name is None:
        raise SettingsError(
            f"{environment} has several GPU groups", remedy=f"name one with GROUP=…: {', '.join(sorted(known))}"
        )
    raise SettingsError(f"group={name!r}: {environment} has no such GPU group", remedy=nearest(name, known))


def parse_start(text: str | None, *, now: datetime) -> datetime:
    """The earliest start in UTC: now, a day from its first minute in UTC, or a time with its zone.

    Args:
        text: `2026-12-01`, or `2026-12-01T09:00+01:00`; None for now.
        now: the time, with its zone.

    Raises:
        SettingsError: neither a day nor a time, a time without a zone, or one that has passed.
    """
    if text is None:
        return now
    is_day = len(text) <= len("2026-12-01")
    try:
        start = datetime.combine(date.fromisoformat(text), time(), UTC) if is_day else _time(text)
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"from={text!r} is neither a day nor a time", remedy="write 2026-12-01, or 2026-12-01T09:00Z"
        ) from error
    # Today is a day that has begun.
    if start < now and not (is_day and start.date() == now.astimezone(UTC).date()):
        raise SettingsError(f"from={text} has passed; it is {utc(now)}", remedy="leave it out, or name a later one")
    return max(start, now)


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise SettingsError(
            f"from={text} has no time zone, so it is a different moment in each",
            remedy=f"write {text}Z for UTC, or {text}+01:00; a day alone begins at 00:00 UTC",
        )
    return found.astimezone(UTC)


def utc(moment: datetime) -> str:
    """A moment for people: `2026-12-01 11:30 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
