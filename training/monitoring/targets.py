"""The runs of this machine that serve metrics, as targets of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from observability.runlog import RunLogReader, TrainingStarted
from training.rundir import RunDirectory, runs

LOCAL = "local"
"""Value of the labels `namespace` and `team`, which a run on a cluster gets from its pod."""

Target = Mapping[str, object]
"""An entry of a file for Prometheus's `file_sd_configs`."""


@dataclass
class _Known:
    """What was read of a run's log so far."""

    reader: RunLogReader
    url: str = ""


@dataclass
class Targets:
    """Finds the targets; each run's log is read once.

    Attributes:
        root: folder of the runs.
    """

    root: Path
    _known: dict[Path, _Known] = field(default_factory=dict)

    def find(self) -> list[Target]:
        """The runs that are running and serve metrics, by name."""
        found = {run.name: self._url(run) for run in runs(self.root) if run.is_running()}
        return [target(name, url) for name, url in sorted(found.items()) if url]

    def _url(self, run: RunDirectory) -> str:
        known = self._known.setdefault(run.path, _Known(RunLogReader(run.path)))
        for event in known.reader.read_new():
            if isinstance(event, TrainingStarted):
                known.url = event.metrics_url
        return known.url


def target(run: str, url: str) -> Target:
    """A run that serves metrics at this URL, with the labels that the stack's scrape configuration adds."""
    return {
        "targets": [urlsplit(url).netloc],
        "labels": {"namespace": LOCAL, "team": LOCAL, "training_job": run},
    }


def names(targets: Sequence[Target]) -> list[str]:
    """The runs of some targets."""
    return [dict(one["labels"])["training_job"] for one in targets if isinstance(one["labels"], Mapping)]
