"""Who waits for whom, from what the flight recorders of the ranks wrote when a collective timed out (`training.flight_recorder`).

    failures/attempt-0-rank-0.flight           the newest collectives of rank 0 under Gloo, as JSON in torch's own format
    failures/attempt-0-rank-0.flight-nccl-0    those under NCCL, whose watchdog writes the same as a pickle before it aborts the process

Under Gloo a rank that hangs outside a collective writes none. Under NCCL the watchdogs tell each other to write, so that it may have one,
in which its last collective is an earlier one. Either way it is the one that the others wait for.
"""

from __future__ import annotations

import io
import json
import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, NoReturn

from training.evidence import FOLDER

_SUM: Final = "all_reduce"
NCCL_SUFFIX: Final = "-nccl-"
"""torch appends the rank."""


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
    for path in (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.flight*"):
        last = _last(path)
        if last is not None:
            found[_rank_of(path)] = last
    return found


def differing(run_directory: Path, *, attempt: int) -> dict[int, Collective]:
    """What the ranks have entered in the first place of a group's order in which they differ; empty if they do not, as far as is known."""
    places = defaultdict[tuple[str, int], dict[int, Collective]](dict)
    for path in (run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.flight*"):
        for entry in _entries(path):
            if not entry.get("is_p2p"):
                place = str(entry.get("process_group")), int(entry["collective_seq_id"])
                places[place][_rank_of(path)] = _collective(entry)
    for _, found in sorted(places.items(), key=lambda item: item[0][1]):
        # The ranks may give a collective other sizes, as of their parts, but a sum.
        kinds = {(one.name, one.values if one.name == _SUM else "") for one in found.values()}
        if len(kinds) > 1:
            return found
    return {}


def aborted(run_directory: Path, *, attempt: int) -> bool:
    """Whether a watchdog of NCCL has written, which it does when a collective times out."""
    return any((run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.flight{NCCL_SUFFIX}*"))


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
    """The last collective of a dump; None without one. Of Gloo's, torch does not record which have ended."""
    entries = _entries(path)
    return _collective(entries[-1]) if entries else None


def _entries(path: Path) -> list[Mapping[str, Any]]:
    """The collectives of a dump, the newest last; none of a damaged one."""
    with suppress(OSError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        read = _unpickled if NCCL_SUFFIX in path.name else json.loads
        entries: list[Mapping[str, Any]] = read(path.read_bytes())["entries"]
        for entry in entries:
            _collective(entry)
        return entries
    return []


def _rank_of(path: Path) -> int:
    return int(path.name.partition(".")[0].rpartition("-")[2])


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and mappings, of which a dump consists: another pickle in the run's folder runs no code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _unpickled(data: bytes) -> Any:  # noqa: ANN401 - like JSON
    return _PlainUnpickler(io.BytesIO(data)).load()


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
