"""A search in a process of its own, observed through its log and stopped by real signals."""

from __future__ import annotations

import hashlib
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

from observability.event_log import LogReader
from tests.training.launch.driver import Driver, Ended
from tests.tune.spaces import RATE
from training.errors import ExitStatus
from tune.events import FILE_NAME, SearchLogReader, SearchStarted, TrialAdded, TrialEnded, TrialReported

NAME = "s"


class SearchDriver(Driver):
    """`python -m tune search` of the search `NAME` under a folder: a new one, or the next driver of one that ended."""

    MODULE = "tune"
    LOG = FILE_NAME

    def __init__(
        self,
        root: Path,
        settings: dict[str, Any],
        *overrides: str,
        code: Path | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Args: `settings` are those of the file; `overrides` are given with --set, `code` with --code; the rest as of `Driver`."""
        arguments = search_arguments(root, settings, *overrides, code=code)
        super().__init__(*arguments, run=root / NAME, prefix=prefix, environment=environment)

    def read_log(self, *, offset: int = 0) -> LogReader:
        return SearchLogReader(self.run, offset=offset)

    def signal_ranks(self, trial: str, number: signal.Signals) -> None:
        """Send a signal to the processes that train a trial."""
        ranks = [process for process in self.descendants() if _trains(process, self.run / "trials" / trial)]
        assert ranks, [process.name() for process in self.descendants()]
        for process in ranks:
            process.send_signal(number)


def run_search(
    root: Path,
    settings: dict[str, Any],
    *overrides: str,
    code: Path | None = None,
    status: ExitStatus = ExitStatus.DONE,
) -> Ended:
    """Drive a search until its driver ends with this status."""
    with SearchDriver(root, settings, *overrides, code=code) as driver:
        ended = driver.end()
    assert ended.status == status, ended.out + ended.err
    return ended


def search_arguments(root: Path, settings: dict[str, Any], *overrides: str, code: Path | None = None) -> list[str]:
    """The command line after `python -m tune`, as for `SearchDriver`."""
    root.mkdir(exist_ok=True)
    config = root / "search.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    sets = [f"search.directory={root}", *overrides]
    arguments = ["search", "--name", NAME, "--config", str(config), *(["--code", str(code)] if code else [])]
    return [*arguments, *(part for one in sets for part in ("--set", one))]


def _trains(process: psutil.Process, trial: Path) -> bool:
    """Whether a process is a rank of a trial: it has the rank's log open."""
    try:
        return any(Path(file.path).is_relative_to(trial / "logs") for file in process.open_files())
    except psutil.Error:
        return False


def search_of(
    *,
    epochs: int,
    space: Mapping[str, Any] = RATE,
    shared: dict[str, Any] | None = None,
    **search: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """The file of a search of digits with trials of one process on a CPU."""
    return {
        "model": {"name": "simple_cnn"},
        "data": {"dataset": "digits"},
        "loop": {"epochs": epochs},
        "scale": {"workers": 1},
        "tracking": {"enabled": False},
        "metrics": {"exporter": "none"},
        **(shared or {}),
        "search": {"space": dict(space), **search},
    }


def assert_counted_once(search: Path, *, trials: int) -> None:
    """Every trial was added once, ended once, and reported each of its epochs once, over all drivers of the search."""
    events = list(SearchLogReader(search).read_new())
    names = {f"t{number:03d}" for number in range(1, trials + 1)}
    assert Counter(event.trial for event in events if isinstance(event, TrialAdded)) == dict.fromkeys(names, 1)
    assert Counter(event.trial for event in events if isinstance(event, TrialEnded)) == dict.fromkeys(names, 1)
    reports = Counter((event.trial, event.epoch) for event in events if isinstance(event, TrialReported))
    assert set(reports.values()) <= {1}
    assert {path.name for path in (search / "trials").iterdir()} == names


def drivers(search: Path) -> int:
    """How many drivers the search has had."""
    return sum(isinstance(event, SearchStarted) for event in SearchLogReader(search).read_new())


def fingerprints(folder: Path) -> dict[str, str]:
    """Hash of each file in a trial's folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
