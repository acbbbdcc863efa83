"""Measure on this machine's GPU what the trainer's settings for GPUs are worth: `python -m observability.benchmarks.gpu`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.spec.errors import ExitStatus, PlatformError
from observability.benchmarks.gpu.cases import Device, Group, groups
from observability.benchmarks.gpu.measure import Measured, all_reduce, columns, measure
from observability.benchmarks.measure import describe_machine
from training.errors import PreflightError, SettingsError
from training.preflight import find_compiler, visible_gpus

_HEADER = [
    "case",
    "step",
    "samples/s",
    "step relative to the first",
    "waiting for data",
    "peak memory",
    "last loss",
    "notes",
]
_ALL_REDUCE = "all-reduce"
_CPU_NOTE = "A trial of this program on a CPU with small models: these figures say nothing about a GPU."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table in Markdown and write it next to a JSON file."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    return ExitStatus.DONE


def _run(options: argparse.Namespace) -> None:
    device: Device = options.device
    gpus = visible_gpus(os.environ) if device == "gpu" else 0
    chosen = _chosen(options, gpus=gpus)
    file: Path = options.json / f"gpu-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Group, list[Measured]]] = []
    reduced: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rtp-bench-gpu-") as scratch:
        for group in chosen:
            results.append((group, measure(group, rounds=options.rounds, scratch=Path(scratch))))
            _write(file, results, reduced, device)  # as soon as a group ends: all of them take half an hour
    if gpus > 1 and options.only in {None, _ALL_REDUCE}:
        reduced = all_reduce(gpus)
        _write(file, results, reduced, device)
    print("\n".join(page(results, reduced, device)))
    print(f"\nwritten to {file} and {file.with_suffix('.md')}")


def _chosen(options: argparse.Namespace, *, gpus: int) -> list[Group]:
    """The groups to measure.

    Raises:
        PreflightError: there is no GPU, or only one for the all-reduce.
        SettingsError: no such group, or fewer than one step or round.
    """
    if options.device == "gpu" and not gpus:
        hidden = " that CUDA_VISIBLE_DEVICES shows" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        raise PreflightError(
            f"bench-gpu measures on an NVIDIA GPU, and this machine has none{hidden}",
            remedy='run it on a machine with a GPU, or in a GPU pod: make shell; ARGS="--device cpu" tries the program on a CPU',
        )
    if min(options.steps, options.rounds) < 1:
        raise SettingsError(
            f"--steps {options.steps} --rounds {options.rounds}: must be at least 1",
            remedy="omit them for the defaults",
        )
    every = groups(options.device, steps=options.steps)
    if options.only == _ALL_REDUCE:
        if gpus < 2:
            raise PreflightError(
                f"an all-reduce needs 2 GPUs or more, and this machine has {gpus}", remedy="omit --only all-reduce"
            )
        return []
    names = [group.name for group in every]
    if options.only not in {None, *names}:
        raise SettingsError(
            f"--only {options.only}: no such group", remedy=f"one of {', '.join([*names, _ALL_REDUCE])}"
        )
    needed = [group for group in every if options.only in {None, group.name}]
    if find_compiler() is None:
        print("without a C++ compiler on PATH: the group compile is left out", file=sys.stderr)
        needed = [group for group in needed if group.name != "compile"]
    return needed


def page(results: list[tuple[Group, list[Measured]]], reduced: Mapping[str, Any], device: Device) -> Iterator[str]:
    """The results in Markdown, with the hardware named."""
    yield hardware(results)
    if device == "cpu":
        yield from ("", _CPU_NOTE)
    for group, measured in results:
        yield from ("", f"### {group.name}: {group.title}", "")
        for row in (_HEADER, ["---"] * len(_HEADER), *columns(measured)):
            yield "| " + " | ".join(row) + " |"
    if reduced:
        rate = reduced["bus_bytes_per_second"] / 1e9
        yield from (
            "",
            f"All-reduce of {reduced['size_bytes'] >> 20} MiB with {reduced['backend']}: {rate:.1f} GB/s (bus bandwidth)",
        )


def hardware(results: list[tuple[Group, list[Measured]]]) -> str:
    """The device and versions that the runs have found, and this machine."""
    found = {
        ", ".join(f"{name} {value}" for name, value in one.hardware.items())
        for _, measured in results
        for case in measured
        for one in case.rounds
    }
    machine = describe_machine()
    host = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "; ".join([*sorted(found), *_driver(), host])


def _driver() -> list[str]:
    """Version of the NVIDIA driver; empty without one."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return []
    return [f"driver {listed[0]}"] if listed else []


def _write(file: Path, results: list[tuple[Group, list[Measured]]], reduced: Mapping[str, Any], device: Device) -> None:
    record = {
        "device": device,
        "hardware": hardware(results),
        "groups": {group.name: [one.dump() for one in measured] for group, measured in results},
        "all_reduce": dict(reduced),
    }
    file.write_text(json.dumps(record, indent=2), encoding="utf-8")
    file.with_suffix(".md").write_text("\n".join(page(results, reduced, device)) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m observability.benchmarks.gpu", description=__doc__)
    made.add_argument("--device", choices=["gpu", "cpu"], default="gpu", help="cpu tries the program with small models")
    made.add_argument("--only", help="measure only one group, e.g. attention")
    made.add_argument("--rounds", type=int, default=3, help="rounds per group (default 3)")
    made.add_argument("--steps", type=int, default=40, help="measured steps per round (default 40)")
    made.add_argument(
        "--json", type=Path, default=Path(".local/bench"), help="directory of the results (default .local/bench)"
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
