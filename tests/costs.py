"""Costs of the tests, in seconds.

    make test ALL=1 ARGS="--costs=.local/costs.jsonl"      measures them
    python -m tests.costs .local/costs.jsonl               prints them by folder, fixture and test
    python -m tests.costs .local/costs.jsonl --write       also keeps those of each file in tests/costs.json, which the suite's plan reads

The file has a line for each phase of a test, for each fixture that outlives a test, and for the collection in each process: wall time, and
CPU time of the process and of all that it started. Programs that detach themselves, as Ray's daemons do, count only while they are its
descendants.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.selection import COSTS, is_extended

_SHORT_SECONDS = 0.1
"""Phases that are shorter are charged their own process's CPU time only: to look at all processes costs milliseconds."""


class Cost(NamedTuple):
    """Seconds of wall time and of CPU time, of one line of the file."""

    kind: str
    name: str
    wall: float
    cpu: float
    part: str = ""

    @property
    def folder(self) -> str:
        """The test's folder, up to the third level."""
        return "/".join(self.name.split("::", 1)[0].split("/")[:-1][:3])


class _Meter:
    """CPU seconds of this process and its descendants."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._all = self._read()
        self._own = time.process_time()

    def start(self) -> tuple[float, float]:
        """Start of a phase: wall clock and CPU of this process alone."""
        return time.monotonic(), time.process_time()

    def stop(self, started: tuple[float, float]) -> tuple[float, float]:
        """Wall and CPU seconds since the start of a phase."""
        wall = time.monotonic() - started[0]
        own = time.process_time()
        if wall < _SHORT_SECONDS:
            return wall, own - started[1]
        # What other programs used since they were last looked at is this phase's: the phases between were short.
        before, self._all = self._all, self._read()
        others = (self._all - before) - (own - self._own)
        self._own = own
        return wall, own - started[1] + max(0.0, others)

    def _read(self) -> float:
        mine = os.times()
        total = mine.user + mine.system + mine.children_user + mine.children_system
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total


class _Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8", buffering=1)
        self._meter = _Meter()
        self._collecting = self._meter.start()

    def _write(self, kind: str, name: str, started: tuple[float, float], part: str = "") -> None:
        wall, cpu = self._meter.stop(started)
        self._file.write(json.dumps(Cost(kind, name, round(wall, 4), round(cpu, 4), part)) + "\n")

    def pytest_collection_finish(self) -> None:
        """Write what the collection cost."""
        self._write("collect", os.environ.get("PYTEST_XDIST_WORKER", "main"), self._collecting)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Write what a fixture of a file, folder or session cost; it is part of the set-up of the first test that uses it, too."""
        if fixturedef.scope == "function":
            return (yield)
        started = self._meter.start()
        result = yield
        self._write("fixture", fixturedef.argname, started)
        return result

    def _phase(self, kind: str, item: pytest.Item) -> Generator[None, object, object]:
        started = self._meter.start()
        try:
            return (yield)
        finally:
            self._write(kind, item.nodeid, started, "extended" if is_extended(item) else "core")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write the cost of a test's set-up."""
        return (yield from self._phase("setup", item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write the cost of the test itself."""
        return (yield from self._phase("call", item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write the cost of what follows a test."""
        return (yield from self._phase("teardown", item))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the file of the costs."""
    parser.addoption(
        "--costs", metavar="FILE", type=Path, help="append the wall and CPU seconds of every test to a JSON Lines file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record in the processes that run tests."""
    file: Path | None = config.getoption("costs")
    if file is not None and (hasattr(config, "workerinput") or not config.getoption("numprocesses", default=None)):
        file.parent.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(_Recorder(file.absolute()))


def read(file: Path) -> Iterator[Cost]:
    """Read the lines of a file of costs."""
    for line in file.read_text(encoding="utf-8").splitlines():
        yield Cost(*json.loads(line))


def write(costs: Iterable[Cost]) -> None:
    """Replace the entries of the files that were measured; those of files that are gone are removed."""
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0, 0.0]))
    for cost in costs:
        if cost.part:
            entry = measured[cost.name.split("::", 1)[0]][cost.part]
            entry[0] += cost.kind == "call"
            entry[1] += cost.wall
    known = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    files = {file: parts for file, parts in {**known, **measured}.items() if (COSTS.parents[1] / file).exists()}
    rounded = {
        file: {part: [number, round(seconds, 1)] for part, (number, seconds) in sorted(parts.items()) if number}
        for file, parts in sorted(files.items())
    }
    lines = ",\n".join(f"  {json.dumps(file)}: {json.dumps(parts)}" for file, parts in rounded.items() if parts)
    COSTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def sums(costs: Iterable[Cost], key: Callable[[Cost], str]) -> list[tuple[float, float, str]]:
    """Seconds of CPU and of wall time by key, the dearest first."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for cost in costs:
        total = found[key(cost)]
        total[0] += cost.cpu
        total[1] += cost.wall
    return sorted(((cpu, wall, name) for name, (cpu, wall) in found.items()), reverse=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the cost by folder, of the dearest fixtures and of the dearest tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs")
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help=f"keep the seconds of each file in {COSTS.name}")
    parser.add_argument("--most", type=int, default=40, help="lines of each table")
    options = parser.parse_args(arguments)
    costs = list(read(options.file))
    if options.write:
        write(costs)
    tests = [cost for cost in costs if cost.kind in {"setup", "call", "teardown"}]
    tables = {
        "process that collected": sums((cost for cost in costs if cost.kind == "collect"), lambda cost: cost.name),
        "part": sums(tests, lambda cost: cost.part),
        "folder": sums(tests, lambda cost: cost.folder),
        "fixture": sums((cost for cost in costs if cost.kind == "fixture"), lambda cost: cost.name),
        "test": sums(tests, lambda cost: cost.name),
    }
    for title, lines in tables.items():
        print(f"\n{'wall s':>8} {'CPU s':>8}  {title}")
        for cpu, wall, name in lines[: options.most]:
            print(f"{wall:8.1f} {cpu:8.1f}  {name}")


if __name__ == "__main__":
    main()
