"""The times of a cron expression, as Kubernetes' CronJob controller reads it (github.com/robfig/cron/v3, ParseStandard)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
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
_YEARS = 5
"""How far the next time is looked for."""

_NOON = 12


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
        either_day: a day matches by its month or by its week; it does so if neither field is a star.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none in five years, e.g. on a 30th of February.

        A local time that a change of the clock skips is left out, and one that comes twice is two times.

        Args:
            moment: the moment, with its zone.
            zone: the zone that the expression's hours are in.
        """
        walk = _Walk(moment, zone)
        last_year = walk.local.year + _YEARS
        while walk.local.year <= last_year:
            if (
                walk.to_month(self.months)
                and walk.to_day(self._has_day)
                and walk.to_hour(self.hours)
                and walk.to_minute(self.minutes)
            ):
                return walk.time
        return None

    def _has_day(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (in_month or in_week if self.either_day else in_month and in_week)


class _Walk:
    """A walk from a moment to the next time, in the steps of robfig/cron v3.0.1 (spec.go, `SpecSchedule.Next`).

    Each method advances until its field matches. It returns False if that has carried into a larger field, which must be checked again.
    Days and months are steps of the calendar, hours and minutes of elapsed time, which makes the difference where the clock changes.

    Attributes:
        time: where it is, in UTC.
    """

    def __init__(self, moment: datetime, zone: tzinfo) -> None:
        self.time = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        self._zone = zone
        self._is_rounded = False

    @property
    def local(self) -> datetime:
        """The local time."""
        return self.time.astimezone(self._zone)

    def to_month(self, months: frozenset[int]) -> bool:
        while (now := self.local).month not in months:
            if self._round():
                now = self._set(now.year, now.month, 1)
            if self._set(now.year, now.month + 1, now.day, now.hour, now.minute).month == 1:
                return False
        return True

    def to_day(self, matches: Callable[[date], bool]) -> bool:
        while not matches((now := self.local).date()):
            if self._round():
                now = self._set(now.year, now.month, now.day)
            hour = self._set(now.year, now.month, now.day + 1, now.hour, now.minute).hour
            if hour:  # midnight is skipped, or comes twice
                self.time += timedelta(hours=24 - hour if hour > _NOON else -hour)
            if self.local.day == 1:
                return False
        return True

    def to_hour(self, hours: frozenset[int]) -> bool:
        while (now := self.local).hour not in hours:
            if self._round():
                self._set(now.year, now.month, now.day, now.hour)
            self.time += timedelta(hours=1)
            if self.local.hour == 0:
                return False
        return True

    def to_minute(self, minutes: frozenset[int]) -> bool:
        while self.local.minute not in minutes:
            self._is_rounded = True
            self.time += timedelta(minutes=1)
            if self.local.minute == 0:
                return False
        return True

    def _round(self) -> bool:
        """Whether the smaller fields have to begin anew, which is so once."""
        was_rounded, self._is_rounded = self._is_rounded, True
        return not was_rounded

    def _set(self, year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
        """Go to a local time like `time.Date` of Go: fields beyond their range carry over, and a skipped time has the offset before."""
        first = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)
        wanted = first + timedelta(days=day - 1, hours=hour, minutes=minute)
        # The offset of a moment near it, and then the one that is right, or nearly so.
        near = wanted - _offset(wanted, self._zone)
        self.time = wanted - _offset(near, self._zone)
        return self.local


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    found = moment.astimezone(zone).utcoffset()
    assert found is not None, "the time has a zone"
    return found


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
    either_day = not (_is_star(words[2]) or _is_star(words[4]))
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


def _is_star(word: str) -> bool:
    """Whether a field limits nothing: a star does not, unless it has a step above 1 (parser.go, `getRange`)."""
    parts = [_PART.fullmatch(part.lower()) for part in word.split(",")]
    return any(part is not None and part["low"] in {"*", "?"} and int(part["step"] or 1) == 1 for part in parts)


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
