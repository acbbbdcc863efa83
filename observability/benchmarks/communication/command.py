"""`make bench ARGS="--only communication"`: what the settings of `communication.*` are worth where the network is slow."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.spec.errors import ExitStatus, PlatformError
from observability.benchmarks.communication.cases import chosen
from observability.benchmarks.communication.measure import Measured, measure, plan
from observability.benchmarks.communication.plot import draw
from observability.benchmarks.communication.table import HEADER, NOTE, expected_seconds, rows
from observability.benchmarks.hosts import hosts
from observability.benchmarks.measure import describe_machine
from observability.quantities import duration
from training.errors import SettingsError

HOSTS = 4


def run(
    names: Sequence[str] | None, *, rounds: int, megabits: float, file: Path, scratch: Path, count: int = HOSTS
) -> int:
    """Measure the cases with these names, or all; print a table, and write it with a plot next to it.

    Args:
        names: of cases.
        rounds: runs of each case.
        megabits: rate of each host's link, in Mbit/s.
        file: of the results, JSON.
        scratch: for the folders of the runs.
        count: number of hosts.

    Returns:
        The exit status.
    """
    try:
        _run(names, rounds=rounds, megabits=megabits, file=file, scratch=scratch, count=count)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    return ExitStatus.DONE


def _run(names: Sequence[str] | None, *, rounds: int, megabits: float, file: Path, scratch: Path, count: int) -> None:
    if rounds < 1 or megabits <= 0:
        raise SettingsError(
            f"--rounds {rounds} --rate {megabits:g}: at least 1 round, and a rate above 0",
            remedy="omit them for the defaults",
        )
    chosen_cases = chosen(names)
    with hosts(count, rate=f"{megabits:g}mbit") as found:
        groups = plan(chosen_cases, hosts=count)
        results = [result for group in groups for result in group]
        title = f"{count} hosts with links of {megabits:g} Mbit/s, {rounds} round{'s' * (rounds != 1)}"
        seconds = expected_seconds(groups, rounds=rounds, megabits=megabits)
        print(f"{len(results)} cases, {title}: about {duration(seconds)}", file=sys.stderr, flush=True)

        def keep() -> None:
            _write(results, file, hosts=count, megabits=megabits)

        file.parent.mkdir(parents=True, exist_ok=True)
        for group in groups:
            measure(group, found, rounds=rounds, scratch=scratch, on_round=keep)
    print(f"{title}; {NOTE}\n")
    for row in (HEADER, ["---"] * len(HEADER), *rows(results)):
        print("| " + " | ".join(row) + " |")
    plot = file.with_suffix(".png")
    draw(results, plot, title=title)
    print(f"\n{describe_machine()}\nwritten to {file} and {plot}")


def _write(results: Sequence[Measured], file: Path, *, hosts: int, megabits: float) -> None:
    """Write the rounds so far, as soon as a round ends: all of them take minutes."""
    measured = [one for one in results if one.rounds]
    record = {
        "machine": describe_machine(),
        "comparisons": [one.comparison(one.baseline).dump() for one in measured if one.baseline is not None],
        "communication": {"hosts": hosts, "megabits": megabits, "cases": [one.dump() for one in measured]},
    }
    file.write_text(json.dumps(record, indent=2), encoding="utf-8")
