"""Chooses the tests of a run.

    make test                         the core: whatever shows a behaviour in little time
    make test ALL=1                   everything that this machine can run
    make test ALL=3/8                 the core and the third of eight parts of the rest
    make test ALL=1 ARGS=tests/tune   everything of a folder

A test is of the core unless it is marked `extended`, or uses a slow server (`SERVERS`) and is not marked `core`. One that is named by its
file runs in any case. `--since REVISION` adds everything in the folders that mirror what changed since then.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "tests" / "costs.json"
"""Numbers and seconds of the tests of each file, as last measured: {file: {"core": [number, seconds], "extended": […]}}."""

SERVERS = frozenset({"operated", "real_nodes", "ray_cluster", "machines"})
"""Fixtures that start operators, nodes or Ray. An API server, a database and an S3 API start in seconds, and a process shares them."""

PLAN = pytest.StashKey["Plan"]()
_UNREAD = pytest.StashKey[set[Path]]()
_NAMED = pytest.StashKey[frozenset[Path]]()
_CHANGED = pytest.StashKey[frozenset[Path]]()
_MODULE_MARK = re.compile(r"^pytestmark = \[?pytest\.mark\.extended\b", re.MULTILINE)


class Share(NamedTuple):
    """Part `number` of `parts` equal parts of the tests outside the core; part 0 is none of them."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Share of an option's value.

        Raises:
            argparse.ArgumentTypeError: not 0, 1 or K/N with K from 1 to N.
        """
        match = re.fullmatch(r"(\d+)(?:/(\d+))?", text)
        number, parts = (int(match[1]), int(match[2] or 1)) if match else (-1, 0)
        if not (0 < number <= parts or text == "0"):
            raise argparse.ArgumentTypeError(f"ALL={text}: give 1 (everything), 0 (the core) or K/N, such as 3/8")
        return cls(number, parts)

    def has(self, file: str) -> bool:
        """Whether the tests of this file are in this part."""
        return self.number > 0 and zlib.crc32(file.encode()) % self.parts == self.number - 1


class Plan(NamedTuple):
    """What runs, what does not, and how long that takes."""

    selected: int
    left_out: int
    """Those outside the core, of what was asked for."""
    seconds: float
    """Of one process, as measured before; 0 if nothing is known."""
    arguments: str = ""
    """Files and folders that were asked for."""

    def line(self, processes: int) -> str:
        """The line that is printed before the tests start."""
        minutes = self.seconds / 60 / max(1, processes)
        about = f", about {minutes:.0f} min" if minutes >= 1 else ""
        arguments = f' ARGS="{self.arguments}"' if self.arguments else ""
        left_out = f"; {self.left_out:,} left out: make test ALL=1{arguments}" if self.left_out else ""
        return f"{self.selected:,} {'test' if self.selected == 1 else 'tests'}{about}{left_out}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the choice."""
    parser.addoption(
        "--all",
        metavar="SHARE",
        type=Share.parse,
        default=Share(0, 1),
        help="1: all tests, K/N: a part of those outside the core",
    )
    parser.addoption("--since", metavar="REVISION", help="also all tests of the folders that changed since then")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marks, and refuse paths that do not exist.

    Raises:
        pytest.UsageError: a path of the command line does not exist.
    """
    config.addinivalue_line("markers", "core: runs always, although it uses a slow server")
    config.addinivalue_line("markers", "extended: runs with ALL=1 only")
    since: str | None = config.getoption("since")
    config.stash[_CHANGED] = frozenset() if since is None else changed_folders(since)
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        for argument in config.args:
            path = config.invocation_params.dir / argument.split("::")[0]
            if not path.exists():
                folders = sorted(
                    str(one.relative_to(ROOT)) for one in (ROOT / "tests").iterdir() if (one / "__init__.py").exists()
                )
                raise pytest.UsageError(f"no such file or folder: {path}; folders of tests are {', '.join(folders)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that have no test of this run, without importing them: that takes as long as many a test."""
    if collection_path.suffix != ".py" or _is_wanted(collection_path, config):
        return None
    if not _MODULE_MARK.search(collection_path.read_text(encoding="utf-8")):
        return None
    config.stash.setdefault(_UNREAD, set()).add(collection_path)
    return True


@pytest.hookimpl(trylast=True)  # after -k and -m, so that the plan counts what they leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not part of this run."""
    left_out = [item for item in items if is_extended(item) and not _is_wanted(item.path, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]
    config.stash[PLAN] = _plan(config, items, left_out=len(left_out))


def is_extended(item: pytest.Item) -> bool:
    """Whether a test is outside the core."""
    for mark in item.iter_markers():
        if mark.name in {"core", "extended"}:
            return mark.name == "extended"
    return not SERVERS.isdisjoint(getattr(item, "fixturenames", []))


def known_costs() -> dict[str, dict[str, list[float]]]:
    """Costs by file; empty if none were measured."""
    costs: dict[str, dict[str, list[float]]] = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    return costs


def typical_seconds(*, is_core: bool) -> dict[str, float]:
    """Seconds of a test of each file, on average; of its core only, or of all of them."""
    found = {}
    for file, parts in known_costs().items():
        costs = [cost for part, cost in parts.items() if part == "core" or not is_core]
        if number := sum(count for count, _ in costs):
            found[file] = sum(seconds for _, seconds in costs) / number
    return found


def changed_folders(revision: str, root: Path = ROOT) -> frozenset[Path]:
    """Folders of tests that mirror the files that changed since a revision.

    Raises:
        pytest.UsageError: git does not know the revision.
    """
    try:
        told = subprocess.run(
            ["git", "diff", "--name-only", revision, "HEAD"], cwd=root, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise pytest.UsageError(f"--since {revision} needs git: {error}") from error
    if told.returncode:
        raise pytest.UsageError(f"--since {revision}: {told.stderr.strip()}")
    folders = set()
    for line in told.stdout.splitlines():
        folder = root / Path(line).parent
        mirror = folder if folder.is_relative_to(root / "tests") else root / "tests" / folder.relative_to(root)
        while not mirror.is_dir():
            mirror = mirror.parent
        if mirror != root / "tests":
            folders.add(mirror)
    return frozenset(folders)


def _is_wanted(file: Path, config: pytest.Config) -> bool:
    """Whether all tests of a file run."""
    if not file.is_relative_to(ROOT):  # a suite of a test
        return bool(config.getoption("all").has(file.name)) or _is_named(file, config)
    share: Share = config.getoption("all")
    return share.has(str(file.relative_to(ROOT))) or _is_named(file, config) or file.parent in config.stash[_CHANGED]


def _is_named(file: Path, config: pytest.Config) -> bool:
    named: frozenset[Path] | None = config.stash.get(_NAMED, None)
    if named is None:
        paths = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
        named = config.stash[_NAMED] = frozenset(path.resolve() for path in paths if path.suffix == ".py")
    return file in named


def _plan(config: pytest.Config, items: list[pytest.Item], *, left_out: int) -> Plan:
    costs = known_costs()
    counts = Counter((item.nodeid.split("::")[0], "extended" if is_extended(item) else "core") for item in items)
    seconds = 0.0
    for (file, part), count in counts.items():
        number, measured = costs.get(file, {}).get(part, (0, 0.0))
        seconds += measured * count / number if number else 0.0
    if not (config.option.keyword or config.option.markexpr):  # how many of the unread ones these leave is not known
        roots = [config.invocation_params.dir / argument.split("::")[0] for argument in config.args]
        for path in config.stash.get(_UNREAD, set()):
            if path.is_relative_to(ROOT) and any(path.is_relative_to(root) for root in roots):
                left_out += sum(int(number) for number, _ in costs.get(str(path.relative_to(ROOT)), {}).values())
    is_asked = config.args_source is pytest.Config.ArgsSource.ARGS
    return Plan(len(items), left_out, seconds, " ".join(config.args) if is_asked else "")
