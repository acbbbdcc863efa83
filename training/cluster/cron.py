"""The times of a cron expression, as Kubernetes' CronJob controller reads it (github.com/robfig/cron/v3, ParseStandard)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from infra.spec.errors import SettingsError

_MONTHS = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_WEEKDAYS = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?P<low>\*|\?|\w+)(?:-(?P<high>\w+))?(?:/(?P<step>\d+))?")
_LONGEST_DAYS = 5 * 366
"""How far the next time is looked for; the controller gives up after five years, too."""


@dataclass(frozen=True)
class _Field:
    """One of the five fields."""

    name: str
    smallest: int
    largest: int
    words: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _WEEKDAYS),
)


@dataclass(frozen=True, kw_only=True)
class Cron:
    """The times of an expression.

    Attributes:
        minutes: minutes of an hour.
        hours: hours of a day.
        days: days of a month.
        months: months.
        weekdays: days of a week, from 0 for Sunday.
        either_day: a day matches by its month or by its week; it does so if the expression limits both.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none in five years, e.g. on a 30th of February.

        Args:
            moment: the moment, with its zone.
            zone: the zone that the expression's hours are in; hours that a clock skips are left out.
        """
        local = moment.astimezone(zone)
        for later in range(_LONGEST_DAYS):
            day = local.date() + timedelta(days=later)
            if not self._has_day(day):
                continue
            for found in self._times(day, zone):
                if found > moment:
                    return found
        return None

    def _has_day(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (in_month or in_week if self.either_day else in_month and in_week)

    def _times(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = datetime.combine(day, time(hour, minute), tzinfo=zone)
                found = local.astimezone(UTC)
                if found.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
                    yield found


def parse_cron(text: str) -> Cron:
    """The times of an expression.

    Args:
        text: minute, hour, day of the month, month and day of the week, or a macro such as `@daily`.

    Raises:
        SettingsError: names the expression, the field and its values.
    """
    words = _MACROS.get(text.strip(), text).split()
    if len(words) != len(_FIELDS):
        raise SettingsError(
            f"schedule {text!r} must have {len(_FIELDS)} fields ({', '.join(one.name for one in _FIELDS)}) or be one of "
            f"{', '.join(_MACROS)}",
            remedy='e.g. SCHEDULE="0 2 * * *" for every day at 02:00',
        )
    minutes, hours, days, months, weekdays = (
        _values(word, field, text) for word, field in zip(words, _FIELDS, strict=True)
    )
    either_day = not any(part[0] in "*?" for word in (words[2], words[4]) for part in word.split(",") if part)
    return Cron(minutes=minutes, hours=hours, days=days, months=months, weekdays=weekdays, either_day=either_day)


def zone_named(name: str) -> tzinfo:
    """A zone of the tz database.

    Raises:
        SettingsError: it is unknown.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(
            f"unknown time zone {name!r}", remedy="use a name of the tz database, e.g. Europe/Berlin or Etc/UTC"
        ) from error


def _values(word: str, field: _Field, text: str) -> frozenset[int]:
    return frozenset(value for part in word.split(",") for value in _range(part, field, text))


def _range(part: str, field: _Field, text: str) -> range:
    """The values of `*`, `5`, `1-5`, `mon-fri`, `*/15`, `10/15` or `1-20/3`."""
    found = _PART.fullmatch(part.lower())
    if found is None:
        raise _invalid(part, field, text)
    step = int(found["step"] or 1)
    if found["low"] in {"*", "?"}:
        low, high = field.smallest, field.largest
    else:
        low = _number(found["low"], field, text)
        high = _number(found["high"], field, text) if found["high"] else field.largest if found["step"] else low
    if step < 1 or high < low or (found["low"] in {"*", "?"} and found["high"]):
        raise _invalid(part, field, text)
    return range(low, high + 1, step)


def _number(word: str, field: _Field, text: str) -> int:
    value = field.words.get(word, int(word) if word.isascii() and word.isdecimal() else -1)
    if not field.smallest <= value <= field.largest:
        raise _invalid(word, field, text)
    return value


def _invalid(part: str, field: _Field, text: str) -> SettingsError:
    words = f" or {', '.join(field.words)}" if field.words else ""
    return SettingsError(
        f"schedule {text!r}: {part!r} is not a {field.name}: values are {field.smallest} to {field.largest}{words}, "
        "ranges 1-5, steps */15 and lists 1,2"
    )
