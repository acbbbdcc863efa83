"""Measure what a fleet of so many nodes and runs costs Prometheus: `python -m observability.benchmarks.fleet`."""

from __future__ import annotations

import argparse
import sys
import time

from infra.spec.errors import ExitStatus, PlatformError, SettingsError
from infra.spec.signals import ENDINGS, interrupting
from observability.benchmarks import options
from observability.benchmarks.fleet.measure import measure
from observability.benchmarks.fleet.report import report, request_bytes, write
from observability.benchmarks.fleet.shape import Fleet
from observability.benchmarks.measure import describe_machine
from training.monitoring.prometheus import find_prometheus

_LONGEST_MINUTES = 24 * 60


def main() -> int:
    """Measure, print tables, and write a JSON file and a plot."""
    arguments = options.fleet().parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
