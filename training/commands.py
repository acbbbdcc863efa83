"""The commands of the command line, one function each. What a command needs beyond settings and run folders it imports itself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from training.config import sources
from training.config.load import load, render
from training.errors import ExitStatus
from training.rundir import RunDirectory, runs

_FLAG_NAMES = [flag.destination for flag in sources.FLAGS] + [sources.GPUS_PER_WORKER]


def train(arguments: argparse.Namespace) -> ExitStatus:
    """Train a new run, or go on with the one of the given name."""
    settings = load(
        arguments.config or ["digits"],
        overrides=arguments.set,
        flags={name: getattr(arguments, name) for name in _FLAG_NAMES},
    )
    if arguments.print_config:
        print(render(settings), end="")
        return ExitStatus.DONE
    from training.drive import drive  # noqa: PLC0415

    return drive(settings)


def resume(arguments: argparse.Namespace) -> ExitStatus:
    """Go on with a run from its newest good checkpoint, with the settings it was started with and those changed now."""
    settings = load([_find(arguments).settings_file], overrides=arguments.set, environment={})
    from training.drive import drive  # noqa: PLC0415

    return drive(settings)


def jobs(arguments: argparse.Namespace) -> ExitStatus:
    """List the runs of this machine, the newest first."""
    from training.joblist import job_table  # noqa: PLC0415

    print(job_table(runs(arguments.root)))
    return ExitStatus.DONE


def logs(arguments: argparse.Namespace) -> ExitStatus:
    """Print what happened in a run, or the log of one of its ranks."""
    run = _find(arguments)
    path = run.logs / f"rank-{arguments.rank}.jsonl" if arguments.rank is not None else run.events
    if path.exists():
        sys.stdout.write(path.read_text(encoding="utf-8"))
    return ExitStatus.DONE


def stop(arguments: argparse.Namespace) -> ExitStatus:
    """Have a running run commit its state and end."""
    run = _find(arguments)
    run.request_stop()
    print(f"{run.name} will save and stop at its next step; go on with it: make resume NAME={run.name}")
    return ExitStatus.DONE


def verify(arguments: argparse.Namespace) -> ExitStatus:
    """Verify every checkpoint of a run; failed where a committed one is not good, or where there is none."""
    from training.checkpoint.manifest import MANIFEST_FILE  # noqa: PLC0415
    from training.checkpoint.store import verify_run  # noqa: PLC0415

    run = _find(arguments)
    committed = {path: problems for path, problems in verify_run(run.path) if (path / MANIFEST_FILE).exists()}
    for path, problems in committed.items():
        print(f"{path}: {'; '.join(problems) if problems else 'good'}")
    if not committed:
        print(f"{run.path}: no checkpoint")
    return ExitStatus.FAILED if not committed or any(committed.values()) else ExitStatus.DONE


def report(arguments: argparse.Namespace) -> ExitStatus:
    """Write a run's report anew."""
    from observability.report import write_report  # noqa: PLC0415

    print(write_report(_find(arguments).path))
    return ExitStatus.DONE


def monitor(arguments: argparse.Namespace) -> ExitStatus:
    """Watch a run in the terminal."""
    from observability.monitor import watch  # noqa: PLC0415

    watch(_find(arguments).path, once=arguments.once)
    return ExitStatus.DONE


def sync(arguments: argparse.Namespace) -> ExitStatus:
    """Send MLflow what it has not had yet."""
    from training.tracking.sync import sync as send  # noqa: PLC0415

    chosen = [_find(arguments)] if arguments.run else runs(arguments.root)
    return send([run.path for run in chosen])


def ui(arguments: argparse.Namespace) -> ExitStatus:
    """Serve MLflow's pages on the embedded store until interrupted."""
    from training.tracking.ui import serve_ui  # noqa: PLC0415

    serve_ui(port=arguments.port)
    return ExitStatus.DONE


def schema(arguments: argparse.Namespace) -> ExitStatus:
    """Print the JSON Schema of the settings."""
    del arguments
    from training.config import json_schema  # noqa: PLC0415

    print(json_schema.text(), end="")
    return ExitStatus.DONE


def _find(arguments: argparse.Namespace) -> RunDirectory:
    root: Path = arguments.root
    return RunDirectory.open(arguments.run, root=root) if arguments.run else RunDirectory.newest(root)
