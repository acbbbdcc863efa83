"""What happens in a search, as events of its log `search.jsonl`.

The driver appends them. A search that is continued, the table in the terminal and the report read them; nothing else is kept about a
trial but its run's folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from observability.event_log import Decoder, Event, LogReader, LogWriter
from training.config.schema import OptionValue

FILE_NAME = "search.jsonl"

TrialStatus = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class SearchStarted(Event):
    """A driver accepted the settings; a search that is continued has one per start.

    Attributes:
        search: name of the search.
        settings: the `search` section, with its defaults.
        shared: the settings that the trials share.
        objectives: the metrics to optimize with max or min, the most important first.
        environment: where the driver runs, and the code.
    """

    kind: ClassVar[str] = "search_started"
    search: str
    settings: dict[str, Any]
    shared: dict[str, Any]
    objectives: dict[str, str]
    environment: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialAdded(Event):
    """The search has chosen the values of a new trial; logged before anything of it is started.

    Attributes:
        trial: its name.
        values: its settings, by dotted key.
    """

    kind: ClassVar[str] = "trial_added"
    trial: str
    values: dict[str, OptionValue]


@dataclass(frozen=True, kw_only=True)
class TrialReported(Event):
    """A trial has been evaluated after an epoch.

    Attributes:
        trial: its name.
        epoch: epochs trained so far.
        step: optimizer steps trained so far.
        metrics: `validation_loss`, `validation_accuracy` and so on.
        worker_seconds: seconds since the start of the trial times its workers, over all its drivers.
    """

    kind: ClassVar[str] = "trial_reported"
    trial: str
    epoch: int
    step: int
    metrics: dict[str, float]
    worker_seconds: float


@dataclass(frozen=True, kw_only=True)
class TrialExploited(Event):
    """A trial continues from a checkpoint of a better one, with other values.

    Attributes:
        trial: its name.
        donor: the better trial.
        epoch: epochs that the donor's checkpoint has trained, and from now on the trial.
        step: optimizer steps of the same.
        weights_sha256: hash of the weights in the donor's checkpoint, which are the trial's first.
        values: the trial's values from now on.
    """

    kind: ClassVar[str] = "trial_exploited"
    trial: str
    donor: str
    epoch: int
    step: int
    weights_sha256: str
    values: dict[str, OptionValue]


@dataclass(frozen=True, kw_only=True)
class TrialEnded(Event):
    """A trial trains no more.

    Attributes:
        trial: its name.
        status: `done` after all its epochs, `stopped` by the scheduler before, or `failed`.
        message: why it was stopped or failed; empty if done.
        worker_seconds: as in `TrialReported`, until its end.
        weights_sha256: hash of its final weights; empty unless done.
    """

    kind: ClassVar[str] = "trial_ended"
    trial: str
    status: TrialStatus
    message: str = ""
    worker_seconds: float = 0.0
    weights_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchNotice(Event):
    """A message to the user.

    Attributes:
        level: `info`, `warning` or `error`.
        message: the text.
    """

    kind: ClassVar[str] = "search_notice"
    level: str
    message: str


@dataclass(frozen=True, kw_only=True)
class SearchEnded(Event):
    """The driver ended the search.

    Attributes:
        status: `done`, `interrupted` or `failed`.
        reason: what ended it, e.g. that all trials have ended or that the target was reached.
        best: the best trial; empty if none has a result.
    """

    kind: ClassVar[str] = "search_ended"
    status: str
    reason: str
    best: str = ""


decode = Decoder(SearchStarted, TrialAdded, TrialReported, TrialExploited, TrialEnded, SearchNotice, SearchEnded)
"""Decodes a line of a search's log."""


class SearchLogWriter(LogWriter):
    """Appends events to the log of a search. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / FILE_NAME, on_torn_line=_torn)


class SearchLogReader(LogReader):
    """Follows the log of a search as it grows, from a byte offset."""

    def __init__(self, directory: Path, *, offset: int = 0) -> None:
        super().__init__(directory / FILE_NAME, decode, offset=offset)


def _torn(message: str) -> SearchNotice:
    return SearchNotice(level="warning", message=message)
