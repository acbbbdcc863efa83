"""Who waits for whom, from what the flight recorders of the ranks wrote when a collective timed out (`training.flight_recorder`).

    failures/attempt-0-rank-0.flight    the newest collectives of rank 0, as JSON in torch's own format

A rank that hangs outside a collective writes none: it is the one that the others wait for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from training.evidence import FOLDER


@dataclass(frozen=True, order=True, kw_only=True)
class Collective:
    """A collective: which one it is of its process group, and what it does."""

    number: int
    name: str
    values: str

    def __str__(self) -> str:
        return f"{self.name} {self.number} ({self.values})"


def dump_file(run_directory: Path, *, attempt: int, rank: int) -> Path:
    """The file with the newest collectives of a rank."""
    return run_directory / FOLDER / f"attempt-{attempt}-rank-{rank}.flight"


def describe_waits(run_directory: Path, *, attempt: int, silent: Sequence[int]) -> str:
    """Which collective the other ranks have entered and the silent ones have not, in a line; empty if no rank has written anything.

    Args:
        run_directory: of the run.
        attempt: that failed.
        silent: ranks that reported nothing.
    """
    found = entered(run_directory, attempt=attempt)
    return waits_in_words({rank: one for rank, one in found.items() if rank not in silent}, silent)


def entered(run_directory: Path, *, attempt: int) -> dict[int, Collective]:
    """The last collective that each rank has entered, of those that have written theirs."""
    found: dict[int, Collective] = {}
    for path in (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.flight"):
        last = _last(path)
        if last is not None:
            found[int(path.stem.rpartition("-")[2])] = last
    return found


def waits_in_words(places_of: Mapping[int, Collective], silent: Sequence[int]) -> str:
    """The line of `describe_waits`, for the last collective that each rank has entered."""
    places = defaultdict[Collective, list[int]](list)
    for rank, collective in sorted(places_of.items()):
        places[collective].append(rank)
    if not places:
        return ""
    parts = [f"{_ranks(ranks)} {_have(ranks)} entered {collective}" for collective, ranks in sorted(places.items())]
    if len(places) > 1:
        return f"{', '.join(parts)}: the ranks do not run the same collectives"
    return f"{parts[0]}, which {_ranks(silent)} {_have(silent)} not"


def _last(path: Path) -> Collective | None:
    """The last collective of a dump; None without one, or if the dump is damaged. Of Gloo's, torch does not record which have ended."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        entries = json.loads(path.read_text(encoding="utf-8"))["entries"]
        return _collective(entries[-1]) if entries else None
    return None


def _collective(entry: Mapping[str, Any]) -> Collective:
    values = [
        f"{prod(sizes):,} {dtype.lower()}"
        for sizes, dtype in zip(entry["input_sizes"], entry["input_dtypes"], strict=False)
    ]
    return Collective(
        number=int(entry["collective_seq_id"]),
        name=str(entry["profiling_name"]).rpartition(":")[2],
        values=", ".join(values[:3]) or "no values",
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _have(ranks: Sequence[int]) -> str:
    return "have" if len(ranks) > 1 else "has"
