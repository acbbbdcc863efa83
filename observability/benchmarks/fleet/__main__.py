"""Measure what a fleet of so many nodes and runs costs Prometheus: `python -m observability.benchmarks.fleet`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from infra.spec.errors import ExitStatus, PlatformError, SettingsError
from infra.spec.signals import ENDINGS, interrupting
from observability.benchmarks.fleet.measure import measure
from observability.benchmarks.fleet.report import report, request_bytes, write
from observability.benchmarks.fleet.shape import Fleet
from observability.benchmarks.measure import describe_machine
from training.monitoring.prometheus import find_prometheus

_LONGEST_MINUTES = 24 * 60


def main() -> int:
    """Measure, print tables, and write a JSON file and a plot."""
    arguments = _parser().parse_args()
    try:
        with interrupting(ENDINGS):
            _run(arguments)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    return ExitStatus.DONE


def _run(arguments: argparse.Namespace) -> None:
    fleet = Fleet(nodes=arguments.nodes, runs=arguments.runs, gpus=arguments.gpus, vcpus=arguments.vcpus)
    if not 1 <= arguments.minutes <= _LONGEST_MINUTES:
        raise SettingsError(
            f"minutes = {arguments.minutes:g}: must be from 1, for two scrapes of every target, to {_LONGEST_MINUTES:,}"
        )
    program = find_prometheus()
    print(f"{fleet.nodes:,} nodes, {fleet.runs:,} runs, {arguments.minutes:g} minutes ...", file=sys.stderr, flush=True)
    result = measure(fleet, program, seconds=60 * arguments.minutes)
    request = request_bytes(fleet)
    for line in report(result, request):
        print(line)
    file = arguments.json / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    write(result, request, file)
    print(f"\n{describe_machine()}\nwritten to {file} and {file.with_suffix('.png')}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m observability.benchmarks.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="nodes, a tenth of them without GPUs (default 1000)")
    parser.add_argument("--runs", type=int, default=300, help="training runs at a time (default 300)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long Prometheus scrapes (default 10)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a GPU node (default 8)")
    parser.add_argument("--vcpus", type=int, default=96, help="virtual CPUs of a node (default 96, a p4d.24xlarge)")
    parser.add_argument(
        "--json",
        type=Path,
        default=Path(".local/bench/fleet"),
        help="directory of the JSON file and the plot (default .local/bench/fleet)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
