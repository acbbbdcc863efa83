"""Measure what faults cost the platform and Ray Train's documented pattern, print a table and write a JSON file."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from infra.spec.errors import ExitStatus, PlatformError
from observability.benchmarks.faults import goodput, kill
from observability.benchmarks.faults.table import HEADER, Figure
from observability.benchmarks.measure import describe_machine
from training.errors import SettingsError

_CASES = ("kill", "drain", "goodput")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparisons and print them; returns the exit status, which a missed goal does not change."""
    arguments = parser().parse_args(argv)
    try:
        _refuse(arguments)
        _run(arguments)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    return ExitStatus.DONE


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m observability.benchmarks.faults", description=__doc__)
    made.add_argument("--rounds", type=int, default=2, help="runs of each side per case (default 2)")
    made.add_argument("--only", choices=_CASES, help="measure only one case")
    made.add_argument("--kills", type=int, default=5, help="kills in a run of `kill` (default 5)")
    made.add_argument("--notice", type=float, default=20.0, help="seconds of notice of `drain` (default 20)")
    made.add_argument("--interval", type=float, default=60.0, help="seconds between kills of `goodput` (default 60)")
    made.add_argument("--intervals", type=int, default=3, help="intervals in a run of `goodput` (default 3)")
    made.add_argument(
        "--json", type=Path, default=Path(".local/bench/faults"), help="folder of the JSON file (.local/bench/faults)"
    )
    return made


def _refuse(arguments: argparse.Namespace) -> None:
    """Raise for a number that measures nothing."""
    for name, least in {"rounds": 1, "kills": 1, "intervals": 1, "notice": 1.0, "interval": 10.0}.items():
        value = getattr(arguments, name)
        if not value >= least:
            raise SettingsError(f"--{name} {value:g}: at least {least:g}", remedy=f"omit --{name} for the default")


def _run(arguments: argparse.Namespace) -> None:
    # The programs have sessions of their own, and are ended as those of an interrupted benchmark are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    file = arguments.json / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = list[Figure]()
    for row in (HEADER, ["---"] * len(HEADER)):
        _print_row(row)
    # Ray's files are in there too, whose sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="rtp-") as folder:
        for case in _CASES:
            if arguments.only in {None, case}:
                print(f"measuring: {case} ...", file=sys.stderr, flush=True)
                found = _measure(case, arguments, Path(folder))
                figures += found
                for figure in found:
                    _print_row(figure.row())
                record = {"machine": describe_machine(), "figures": [one.dump() for one in figures]}
                file.write_text(json.dumps(record, indent=2), encoding="utf-8")
    print(f"\n{describe_machine()}\nwritten to {file}")


def _measure(case: str, arguments: argparse.Namespace, scratch: Path) -> list[Figure]:
    rounds = arguments.rounds
    if case == "kill":
        return kill.compare(rounds=rounds, kills=arguments.kills, scratch=scratch)
    if case == "drain":
        from observability.benchmarks.faults import drain  # noqa: PLC0415 - imports Ray, which the others need not

        return drain.compare(rounds=rounds, notice=arguments.notice, scratch=scratch)
    return goodput.compare(rounds=rounds, intervals=arguments.intervals, seconds=arguments.interval, scratch=scratch)


def _print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
