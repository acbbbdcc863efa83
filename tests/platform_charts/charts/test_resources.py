"""Requests and limits of every container in the values, merged with the recorded defaults of the charts as Helm does."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes.utils.quantity import parse_quantity

from infra.spec.release import load_release
from tests.engines.helm import find_pinned_archive
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.charts.releases import installs_of

DEFAULTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("chart_defaults.yaml").read_text(encoding="utf-8"))
"""Version and relevant default values by chart."""

_SUBCHARTS = {"nfd": "node-feature-discovery"}
"""Name of a subchart by its alias."""

_GLOBAL_INTERVAL = "30s"
"""Interval of a monitor that names none (Prometheus Operator, `scrapeInterval`)."""


class Container(NamedTuple):
    """A container's name, and its resources as the API server gets them."""

    name: str
    resources: Mapping[str, Mapping[str, str]]


def broken_rules(container: Container) -> list[str]:
    """Requests and limits that are missing, and requests above their limit."""
    requests, limits = (container.resources.get(bound, {}) for bound in ("requests", "limits"))
    missing = [
        f"{container.name}: no {resource} in {bound}"
        for bound, amounts in (("requests", requests), ("limits", limits))
        for resource in ("cpu", "memory")
        if resource not in amounts
    ]
    above = [
        f"{container.name}: {resource} request {requests[resource]} > limit {limits[resource]}"
        for resource in requests.keys() & limits.keys()
        if parse_quantity(requests[resource]) > parse_quantity(limits[resource])
    ]
    return missing + above


def merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A chart's defaults with our values, merged as Helm does: maps by key, and null removes a key."""
    found = dict(defaults)
    for key, value in values.items():
        before = found.get(key)
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def maps(node: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every map in values, with its dotted path."""
    if isinstance(node, Mapping):
        yield path, node
        for key, value in node.items():
            yield from maps(value, f"{path}.{key}" if path else key)


def seconds(duration: str) -> int:
    """A duration of Prometheus in seconds or minutes."""
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def is_scraped_in_time(monitor: Mapping[str, str]) -> bool:
    """Whether the time-out, if there is one, is within the interval; the Prometheus Operator rejects any other monitor."""
    timeout, interval = monitor.get("scrapeTimeout"), monitor.get("interval")
    return not timeout or seconds(timeout) <= seconds(interval or _GLOBAL_INTERVAL)


def test_containers_and_scrapes_in_the_values_have_requests_limits_and_intervals_that_fit() -> None:
    assert {name: one["version"] for name, one in DEFAULTS.items()} == {
        name: chart.version for name, chart in load_release().charts.items()
    }
    for environment in ENVIRONMENTS:
        for name, install in installs_of(settings_of(environment)).items():
            for path, values in maps(merged(DEFAULTS[name]["values"], install.values)):
                if path.endswith("resources") and "storage" not in values.get("requests", {}):
                    assert broken_rules(Container(f"{environment}: {name}: {path}", values)) == []
                assert "scrapeTimeout" not in values or is_scraped_in_time(values), path


def default_values(name: str) -> dict[str, Any]:
    """The defaults in a chart's archive, with those of subcharts below their names; skips without the pinned archive."""
    archive = find_pinned_archive(name)
    with tarfile.open(archive) as packed:
        texts = {member.name: packed.extractfile(member) for member in packed if member.name.endswith("values.yaml")}
        read = {path: yaml.safe_load(text.read()) or {} for path, text in texts.items() if text is not None}
    found: dict[str, Any] = read[f"{name}/values.yaml"]
    for key in DEFAULTS[name]["values"]:
        subchart = read.get(f"{name}/charts/{_SUBCHARTS.get(key, key)}/values.yaml")
        if subchart is not None:
            found[key] = merged(subchart, found.get(key, {}))
    return found


def picked(values: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The values at the recorded keys; `resources` with all their keys."""
    return {
        key: picked(values[key], value) if isinstance(value, dict) and key != "resources" else values[key]
        for key, value in recorded.items()
    }


def test_the_recorded_defaults_are_those_of_the_archives() -> None:
    for name, recorded in DEFAULTS.items():
        assert picked(default_values(name), recorded["values"]) == recorded["values"], name
