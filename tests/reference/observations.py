"""The pages of exit statuses, metrics and events."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final, get_args

from infra.spec.errors import EXIT_MEANINGS, ExitStatus
from observability import runlog
from observability.event_log import NOW, Decoder, Event
from observability.metrics.inventory import INVENTORY, MetricSpec
from tests.reference.markdown import code, page, section, sentence, table
from tune import events

_OF_EVERY_EVENT: Final = {one.name for one in fields(Event)}

_ATTRIBUTE: Final = re.compile(r"^(\w+(?:, \w+)*): (.*)$")


def exit_status_page() -> str:
    """The page of the exit statuses."""
    rows = ((code(int(status)), code(status.name), EXIT_MEANINGS[status]) for status in ExitStatus)
    return page(
        "Exit status",
        "Every command of `python -m training`, `python -m tune` and `python -m infra.lifecycle` ends with one of these. make exits with 2 "
        "whatever status a command had, and prints that status in its last line.",
        table(("status", "name", "meaning"), rows),
    )


def metrics_page() -> str:
    """The page of the metrics."""
    parts = []
    for label, title in (("run", "Of a run"), ("search", "Of a search")):
        rows = (_metric(spec) for spec in INVENTORY if spec.labels[0] == label)
        parts.append(section(title, table(("metric", "type", "unit", "labels", "meaning"), rows)))
    buckets = (
        (code(spec.name), ", ".join(f"{bound:g}" for bound in spec.buckets)) for spec in INVENTORY if spec.buckets
    )
    return page(
        "Metrics",
        "What runs and searches export to Prometheus. Ratios are from 0 to 1, times are Unix times in seconds. "
        "[MONITORING](../MONITORING.md) "
        "lists the dashboards, [RUNBOOKS](../RUNBOOKS.md) the alerts.",
        *parts,
        section("Buckets of the histograms", table(("metric", "upper bounds"), buckets)),
    )


def events_page() -> str:
    """The page of the events."""
    return page(
        "Events",
        "The log of a run and the log of a search are JSON Lines. Each line has `kind`, which names the event, and the fields of every "
        "event. Readers skip kinds and fields that they do not know. A field without a default is in every event of its kind.",
        section("Of every event", _fields(fields(Event), _meanings(Event))),
        section(f"Of a run: `{runlog.FILE_NAME}`", *_events(runlog.decode)),
        section(f"Of a search: `{events.FILE_NAME}`", *_events(events.decode)),
    )


def _metric(spec: MetricSpec) -> tuple[str, ...]:
    return code(spec.name), spec.kind, spec.unit, ", ".join(map(code, spec.labels)), spec.help


def _events(decode: Decoder) -> Iterator[str]:
    for cls in decode.classes:
        summary = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]
        own = [one for one in fields(cls) if one.name not in _OF_EVERY_EVENT]
        yield section(code(cls.kind), " ".join(summary.split()), _fields(own, _meanings(cls)), level=3)


def _fields(listed: Iterable[Field[Any]], meanings: Mapping[str, str]) -> str:
    rows = ((code(one.name), _type(one), _default(one), meanings.get(one.name, "")) for one in listed)
    return table(("field", "type", "default", "meaning"), rows)


def _meanings(cls: type[Event]) -> dict[str, str]:
    """The meaning of each field, from the section `Attributes` of the docstring."""
    _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:\n")
    lines = re.sub(r"\n {8,}", " ", attributes).splitlines()
    found = (match for line in lines if (match := _ATTRIBUTE.match(line.strip())))
    return {name: sentence(match[2]) for match in found for name in match[1].split(", ")}


def _type(one: Field[object]) -> str:
    """The type as the source has it; a Literal is its values."""
    text = one.type if isinstance(one.type, str) else getattr(one.type, "__name__", str(one.type))
    values = get_args(getattr(events, text, None)) if text.isidentifier() else ()
    return ", ".join(code(value) for value in values) or code(text)


def _default(one: Field[object]) -> str:
    if one.default_factory is not MISSING:
        return code(one.default_factory())
    if one.default is NOW:
        return "now"
    return "" if one.default is MISSING else code(repr(one.default).replace("'", '"'))
