"""Where the time of a job goes, from the command that submits it to its end: from its objects' conditions and its event log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.spec.manifest import Manifest
from observability.runlog import Event, RunEnded, RunStarted, Step, TrainingStarted, select
from tests.training.on_nodes.cluster import Job
from training.cluster.objects import conditions

COLUMNS = (
    "submitted",
    "admitted",
    "pods on nodes",
    "pods ready",
    "driver started",
    "ranks ready",
    "first step",
    "last step",
    "driver ended",
    "command ended",
)


@dataclass(frozen=True)
class Timeline:
    """Seconds since a command was started, by the names in `COLUMNS`; one that is missing was not seen."""

    job: Job
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, job: Job) -> Timeline:
        """What the objects of a running job say; their times are whole seconds."""
        pods = [*job.pods("head"), *job.pods("worker")]
        found = {
            "submitted": _time(job.read()["metadata"]["creationTimestamp"]),
            "admitted": _became(job.workload(), "Admitted"),
            "pods on nodes": max(_became(pod, "PodScheduled") for pod in pods),
            "pods ready": max(_became(pod, "Ready") for pod in pods),
        }
        return cls(job, {name: time - job.submitted for name, time in found.items()})

    def ended(self, at: float) -> Timeline:
        """With what the event log says.

        Args:
            at: Unix time of the command's end.
        """
        events = self.job.events
        found = {
            "driver started": _first(events, RunStarted),
            "ranks ready": _first(events, TrainingStarted),
            "first step": _first(events, Step),
            "last step": select(events, Step)[-1].time,
            "driver ended": select(events, RunEnded)[-1].time,
            "command ended": at,
        }
        return Timeline(self.job, {**self.seconds, **{name: time - self.job.submitted for name, time in found.items()}})


def table(timelines: Iterable[Timeline]) -> Sequence[str]:
    """One line for each job."""
    rows: list[tuple[str, ...]] = [("job", *COLUMNS)]
    rows += [
        (one.job.name, *(f"{one.seconds[name]:.0f}" if name in one.seconds else "" for name in COLUMNS))
        for one in timelines
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _first(events: Sequence[Event], kind: type[Event]) -> float:
    return select(events, kind)[0].time


def _became(found: Manifest, condition: str) -> float:
    (time,) = [
        one["lastTransitionTime"] for one in conditions(found) if one["type"] == condition and one["status"] == "True"
    ]
    return _time(time)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
