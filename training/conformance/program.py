"""The driver of the job, in its head: one part after the other, each in a process of its own, and a line of output for each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.spec.command_line import option
from training.config.load import load_settings
from training.conformance.facts import (
    FABRIC_FILE,
    FabricFacts,
    NetworkFacts,
    ObjectFacts,
    Part,
    PartReport,
    TrackingFacts,
    TrainingFacts,
    write_line,
)
from training.conformance.network import network_facts
from training.errors import ExitStatus, PlatformError
from training.rundir import RunDirectory
from training.script.variables import OUTPUT_VARIABLE

Facts = FabricFacts | NetworkFacts | ObjectFacts | TrainingFacts | TrackingFacts

_LONGEST_ERROR = 400
_FABRIC_MINUTES = 20.0


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of `job`."""

    config: Path = option("settings of the training", ..., metavar="FILE")
    nodes: int = option("worker pods", 2, at_least=1)
    gpus: int = option("GPUs of each pod", 0, at_least=0)
    cpus: int = option("cores of each pod", 1, at_least=1)
    bucket: str | None = option("S3 bucket of checkpoints; without it no object is written")
    own: str = option("the team's folder in it", "")
    foreign: str | None = option("another team's folder in it")
    allowed: str | None = option("server that the pods may reach", metavar="HOST:PORT")
    denied: str | None = option("server that the pods may not reach", metavar="HOST:PORT")
    here: bool = option("run the ranks on this machine, not on the nodes of a Ray cluster", default=False)


def run(options: JobOptions) -> ExitStatus:
    """Run all parts, and print a report of each; a part that fails does not stop the next one."""
    settings = load_settings([str(options.config)])
    assert settings.run.name is not None, "whoever writes the settings names the run"
    run_folder = RunDirectory(settings.run.directory / settings.run.name)
    parts: dict[Part, Callable[[], Facts]] = {
        "fabric": lambda: _fabric(options, run_folder),
        "training": lambda: _training(options, run_folder),
        "tracking": lambda: _tracking(run_folder),
    }
    if options.allowed is not None and options.denied is not None:
        found = partial(network_facts, allowed=options.allowed, denied=options.denied)
        parts = {"network": found, **parts}
    if options.bucket is not None:
        parts = {"objects": lambda: _objects(options, run_folder.name), **parts}
    reports = [_report(part, find) for part, find in parts.items()]
    return ExitStatus.FAILED if any(one.error for one in reports) else ExitStatus.DONE


def _report(part: Part, find: Callable[[], Facts]) -> PartReport:
    start = time.monotonic()
    found, error = None, ""
    try:
        found = find()
    except Exception as failure:  # noqa: BLE001 - the report carries it, and the next part may work
        error = " ".join(f"{type(failure).__name__}: {failure}".split())[:_LONGEST_ERROR]
    report = PartReport(part=part, seconds=time.monotonic() - start, error=error, facts=found)
    print(write_line(report), flush=True)
    return report


def _objects(options: JobOptions, name: str) -> ObjectFacts:
    from training.conformance.objects import round_trip  # noqa: PLC0415 - imports boto3

    assert options.bucket is not None, "without a bucket there is no such part"
    return round_trip(options.bucket, own=options.own, foreign=options.foreign, name=name)


def _fabric(options: JobOptions, run_folder: RunDirectory) -> FabricFacts:
    folder = run_folder.path.with_name(f"{run_folder.name}-fabric")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _measured(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(options: JobOptions, folder: Path) -> FabricFacts:
    """What the ranks leave in a folder that they share."""
    ranks = ["-m", "training.conformance", "fabric", *(["--gpus"] if options.gpus else [])]
    if options.here:
        here = [
            "--standalone",
            f"--log-dir={os.devnull}",
            f"--nproc-per-node={options.nodes * max(1, options.gpus)}",
            *ranks,
        ]
        _run("-m", "torch.distributed.run", *here, environment={OUTPUT_VARIABLE: str(folder)})
    else:
        pods = {"nodes": options.nodes, "gpus": options.gpus, "cpus": options.cpus, "start-minutes": _FABRIC_MINUTES}
        places = [f"--root={folder.parent}", f"--name={folder.name}"]
        places += [f"--{key}={value}" for key, value in pods.items()]
        _run("-m", "training", "run-on-nodes", *places, f"--cmd=torchrun {' '.join(ranks)}")
    return FabricFacts.model_validate(json.loads((folder / FABRIC_FILE).read_text(encoding="utf-8")))


def _training(options: JobOptions, run_folder: RunDirectory) -> TrainingFacts:
    from training.conformance.run_facts import training_facts  # noqa: PLC0415

    failure = ""
    try:
        _run("-m", "training", "train", "--config", str(options.config))
    except PlatformError as error:  # the run's log says more
        failure = str(error)
    try:
        return training_facts(run_folder)
    except ValueError as error:
        raise PlatformError(f"{failure}: {error}") from error


def _tracking(run_folder: RunDirectory) -> TrackingFacts:
    from training.conformance.tracking import tracking_facts  # noqa: PLC0415 - imports MLflow

    return tracking_facts(run_folder)


def _run(*arguments: str, environment: dict[str, str] | None = None) -> None:
    """Run a program of this image, which prints to the job's log.

    Raises:
        PlatformError: it fails.
    """
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, **(environment or {})}, check=False)
    if done.returncode:
        raise PlatformError(f"{' '.join(arguments[:3])} ended with status {done.returncode}")
