"""How tests are shared out among processes: how many there are, what stays together, what comes first, what they report.

The whole suite runs in several processes, because most of its time passes in programs that it starts. Tests that somebody
has chosen run in one, in which output and debuggers work as usual. `-n` decides otherwise.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.engines import report_table
from tests.engines.being_built import await_build, is_being_built
from tests.engines.kubernetes import engine_environment

MOST_WORKERS = 4
"""With more, the longest group of tests decides when the suite ends."""

KUBERNETES = "kubernetes"
OPERATORS = "operators"
"""They have a control plane of their own."""

RAY = "ray"
"""Ray gives up where it has not started within 30 s (a constant of its own), so that two should not start at once."""

GROUPS = {
    "control_plane": KUBERNETES,
    "operated": OPERATORS,
    "postgres_url": "mlflow",
    "s3_api": "mlflow",
    "ray_cluster": RAY,
    "machines": RAY,
}
"""Fixtures that stand for something which is started once for many files, or alone, and the group of its tests.

Other fixtures belong to a file at most, and so does the group of other tests.
"""

_CHOOSING = ("keyword", "markexpr", "maxfail", "lf")
_PARTS = "real_parts"
_SESSION = pytest.StashKey[str]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: one a CPU for the whole suite, none beside this one for tests that were chosen."""
    are_named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    are_chosen = are_named or any(config.getoption(option, default=None) for option in _CHOOSING)
    return 0 if are_chosen else min(len(os.sched_getaffinity(0)), MOST_WORKERS)


def pytest_report_header() -> list[str]:
    """Say what some tests are going to wait for."""
    return ["Kubernetes is being built: its tests wait for it"] if is_being_built(engine_environment()) else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the groups, and put first what takes long: the processes then end together.

    The trainer's tests start processes that import torch and Ray. Kubernetes may still be built while they run.
    """
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        for fixture, group in GROUPS.items():
            if fixture in fixtures:
                item.add_marker(pytest.mark.xdist_group(group))
                break
    items.sort(key=_turn)


@pytest.hookimpl(tryfirst=True)  # before xdist tells the process that deals out the tests
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the groups: xdist 3.8 does so by another name of the test, which pytest 9.2 does not allow any more."""
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is not None:
        file = _groups_file(worker["testrunuid"])
        groups = {item.nodeid: group for item in session.items if (group := _group(item)) is not None}
        written = file.with_suffix(f".{worker['workerid']}")
        written.write_text(json.dumps(groups), encoding="utf-8")
        written.replace(file)


def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - xdist has no type for it
    """Remember the name of the session, which is also that of the file with the groups."""
    node.config.stash[_SESSION] = node.workerinput["testrunuid"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Keep groups together, and files."""
    return _ByGroupOrFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for Kubernetes where it is being built; the time limit of the test begins behind that."""
    if _group(item) in {KUBERNETES, OPERATORS}:
        await_build(engine_environment())
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand this process's part of the table to the process that prints it."""
    handed_over: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if handed_over is not None:
        handed_over[_PARTS] = report_table.rows()


def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist has no type for it
    """Take over what a process has said of real parts; one that was killed says nothing."""
    report_table.add_rows(getattr(node, "workeroutput", {}).get(_PARTS, {}))


class _ByGroupOrFile(LoadFileScheduling):
    """Deals out a group at a time, and what is in none by file."""

    _groups: dict[str, str]

    def schedule(self) -> None:
        """Deal out; every process has told the groups by now."""
        if self.collection is None:
            file = _groups_file(self.config.stash[_SESSION])
            self._groups = json.loads(file.read_text(encoding="utf-8"))
            file.unlink()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid) or str(super()._split_scope(nodeid))


def _groups_file(session: str) -> Path:
    return Path(tempfile.gettempdir()) / f"rtp-groups-{session}.json"


def _turn(item: pytest.Item) -> int:
    if _group(item) in {KUBERNETES, OPERATORS}:
        return 1
    return 0 if item.nodeid.startswith("tests/training/") else 2


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return None if marker is None else str(marker.args[0])
