"""Distributes tests among processes: number, groups, order.

The tests of one file share a process, and so do all tests that use the same server. Selected tests run in one process, where output and
debuggers work as usual. `-n` overrides both.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from infra.lifecycle.sandbox.modules import MODULES, MONITORING_MODULES, NODE_MODULES, PREVIOUS_MODULES, Module
from tests.engines.engines_build import await_build, is_build_running
from tests.engines.kubernetes import engine_environment
from tests.selection import PLAN, Plan, known_costs

MOST_WORKERS = 4
"""More do not help: the longest group bounds the duration of the suite."""

KUBERNETES = "kubernetes"
OPERATORS = "operators"
"""Tests with their own control plane."""

REAL_NODES = "real-nodes"
"""Nodes that run pods, one sandbox after the other."""

RAY = "ray"
"""Ray clusters of one node: one at a time, because each start keeps every CPU busy."""

RAY_NODES = "ray-nodes"
"""Ray clusters of several nodes."""

GROUPS = {
    "control_plane": KUBERNETES,
    "operated": OPERATORS,
    "real_nodes": REAL_NODES,
    "postgres_url": "mlflow",
    "s3_api": "mlflow",
    "ray_cluster": RAY,
    "machines": RAY_NODES,
}
"""Group of the tests of a fixture that starts a service once for many files, or that must run alone."""

MONITORING = "monitoring"
"""Marker of tests that run Prometheus or Alertmanager."""

_NEEDED: Mapping[str, tuple[Module, ...]] = {
    KUBERNETES: (*MODULES, *PREVIOUS_MODULES),
    OPERATORS: (*MODULES, *PREVIOUS_MODULES),
    REAL_NODES: (*MODULES, *NODE_MODULES),
    MONITORING: MONITORING_MODULES,
}
"""What tests of a group, or with a marker, need of `make engines`."""

_CHOOSING = ("keyword", "markexpr", "maxfail", "lf")
_SESSION = pytest.StashKey[str]()


class _Collected(NamedTuple):
    """What a worker reports of its collection, which is that of every worker."""

    groups: dict[str, str]
    """Group by test."""
    plan: tuple[int, int, float, str]


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", f"{MONITORING}: waits for the Prometheus and the Alertmanager of `make engines`")


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether no tests were named or chosen."""
    are_named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return not are_named and not any(config.getoption(option, default=None) for option in _CHOOSING)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Number of worker processes: one more than CPUs, because one waits for a server much of the time.

    Selected tests run in this process.
    """
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS) if is_whole_suite(config) else 0


def pytest_report_header() -> list[str]:
    """Report that some tests wait for `make engines`."""
    return (
        ["make engines is running: the tests that need Kubernetes or Prometheus wait for it"]
        if is_build_running(engine_environment())
        else []
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the groups, and sort so that all processes finish at about the same time: the longest first.

    What a running `make engines` still builds comes last.
    """
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        for fixture, group in GROUPS.items():
            if fixture in fixtures:
                item.add_marker(pytest.mark.xdist_group(group))
                break
    costs = {file: sum(part[1] for part in parts.values()) for file, parts in known_costs().items()}
    seconds: dict[str, float] = {}
    for file, unit in {(_file(item), _group(item) or _file(item)) for item in items}:
        seconds[unit] = seconds.get(unit, 0.0) + costs.get(file, 0.0)
    waits = is_build_running(engine_environment())
    items.sort(key=lambda item: (waits and len(_needed(item)), -seconds[_group(item) or _file(item)]))


@pytest.hookimpl(tryfirst=True)  # before xdist reports to the controller
def pytest_collection_finish(session: pytest.Session) -> None:
    """Report groups and plan: xdist 3.8 reports groups by renaming the test, which pytest 9.2 no longer allows."""
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is not None:
        file = _collected_file(worker["testrunuid"])
        groups = {item.nodeid: group for item in session.items if (group := _group(item)) is not None}
        written = file.with_suffix(f".{worker['workerid']}")
        written.write_text(json.dumps(_Collected(groups, session.config.stash[PLAN])), encoding="utf-8")
        written.replace(file)


def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - xdist has no type for it
    """Remember the id of the session, which names the file of what was collected."""
    node.config.stash[_SESSION] = node.workerinput["testrunuid"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Keep the tests of a group or file in one process."""
    return _ByGroupOrFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for what a running `make engines` still builds before the time limit of the test starts."""
    if needed := _needed(item):
        await_build(engine_environment(), *needed)
    return (yield)


class _ByGroupOrFile(LoadFileScheduling):
    """Schedules one group at a time, and all other tests by file."""

    _groups: dict[str, str]

    def schedule(self) -> None:
        """Schedule; by now every process has reported its groups."""
        if self.collection is None:
            file = _collected_file(self.config.stash[_SESSION])
            collected = _Collected(*json.loads(file.read_text(encoding="utf-8")))
            file.unlink()
            self._groups = collected.groups
            self.config.hook.pytest_tests_planned(plan=Plan(*collected.plan), processes=len(self.nodes))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid) or str(super()._split_scope(nodeid))


def _collected_file(session: str) -> Path:
    return Path(tempfile.gettempdir()) / f"rtp-collected-{session}.json"


def _needed(item: pytest.Item) -> tuple[Module, ...]:
    """Modules whose programs a test needs."""
    is_monitoring = item.get_closest_marker(MONITORING) is not None
    return (*_NEEDED.get(_group(item) or "", ()), *(_NEEDED[MONITORING] if is_monitoring else ()))


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return None if marker is None else str(marker.args[0])


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", maxsplit=1)[0]
