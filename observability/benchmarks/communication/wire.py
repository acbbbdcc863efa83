"""Bytes on the links: counted by the kernel while a run goes on, and computed from the shapes of the weights."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence

from observability.benchmarks.communication.cases import Case
from observability.benchmarks.hosts import Host, Sent, sent_by
from training.communication.wire import bytes_sent
from training.config.schema import TrainingSettings
from training.data.registry import load_dataset
from training.models.registry import build_model


class WireCounter:
    """Samples of what each host has sent, by Unix time: the ranks note in the log of a run when their steps end."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._times: list[float] = []
        self._counts: list[list[Sent]] = []

    def sample(self) -> None:
        """Read the counters now."""
        self.add(time.time(), sent_by(self._hosts))

    def add(self, moment: float, counts: list[Sent]) -> None:
        """Note what the counters said at a moment, which is later than those before."""
        self._times.append(moment)
        self._counts.append(counts)

    def sent_between(self, start: float, end: float) -> list[Sent]:
        """What each host sent between two moments, interpolated between the samples around each.

        Raises:
            ValueError: the samples do not cover the time.
        """
        return [after - before for before, after in zip(self._at(start), self._at(end), strict=True)]

    def _at(self, moment: float) -> list[Sent]:
        index = bisect_left(self._times, moment, lo=1)
        if index >= len(self._times) or moment < self._times[0]:
            raise ValueError(f"the counters were not read around {moment}")
        part = (moment - self._times[index - 1]) / (self._times[index] - self._times[index - 1])
        pairs = zip(self._counts[index - 1], self._counts[index], strict=True)
        return [
            Sent(
                frames=before.frames + part * (after.frames - before.frames),
                bytes=before.bytes + part * (after.bytes - before.bytes),
            )
            for before, after in pairs
        ]


def expected_bytes(case: Case, settings: TrainingSettings) -> float:
    """Bytes that a host sends in a step, without headers, Gloo's messages about messages and the small all-reduce of the loss.

    Gloo reduces in a ring (reduce-scatter, then all-gather): each of N ranks sends 2 (N - 1) / N of the bytes to the next one. torchrun
    numbers the ranks host by host, so one rank of each host has its next one on another host. A weight that is sent goes to N - 1 ranks;
    each rank sends 1 / N of them.
    """
    module = build_model(settings.model, load_dataset(settings.data).spec)
    ranks = settings.scale.workers
    reduced = bytes_sent(module.parameters(), settings.communication) * case.reduced_per_step
    sent = sum(one.nbytes for one in module.parameters()) if case.sends_weights else 0
    return (ranks - 1) / ranks * (2 * reduced + sent)
