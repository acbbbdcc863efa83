"""The command line: `python -m training COMMAND`. `make train` and the like call it.

With `--env` a command works on the cluster of that environment. Commands import their heavier modules themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from infra.spec.command_line import CommandLine, NoOptions
from training.config.load import load_settings, render
from training.errors import ExitStatus
from training.options import (
    JobsOptions,
    JobYamlOptions,
    LogsOptions,
    MonitorOptions,
    ResumeOptions,
    RunOptions,
    StopOptions,
    TrainOptions,
    UiOptions,
)
from training.rundir import RUN_DIRECTORY, RunDirectory, runs

COMMANDS = CommandLine(
    "python -m training",
    "Train models, on this machine or with --env on a cluster, and look at their runs.",
    variables={
        RUN_DIRECTORY: "folder of the runs, run.directory",
        "RTP_TRACKING_URI": "MLflow's tracking server, tracking.uri",
        "RTP_EXPERIMENT": "MLflow's experiment, tracking.experiment",
        "RTP_STACK_OUTPUTS": "with --env: file with the output of `pulumi stack output --json`",
        "KUBECONFIG": "with --env: kubeconfig of the cluster",
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `ExitStatus`."""
    return COMMANDS.main(arguments)


@COMMANDS.command("train")
def train(options: TrainOptions) -> ExitStatus:
    """Train a new run, or resume the one of the given name; with --env submit and follow a job."""
    if options.env is not None:
        from training.cluster import commands

        return commands.train(options)
    settings = load_settings(options.config or ["digits"], overrides=options.set, flags=options.flags())
    if options.print_config:
        print(render(settings), end="")
        return ExitStatus.DONE
    from training.drive import drive

    return drive(settings)


@COMMANDS.command("train")
def resume(options: ResumeOptions) -> ExitStatus:
    """Resume a run from its newest good checkpoint, with its settings and the changes of the command line."""
    if options.env is not None:
        from training.cluster import commands

        return commands.resume(options)
    from training.drive import drive

    return drive(_chosen(options).settings(options.set))


@COMMANDS.command("train")
def stop(options: StopOptions) -> ExitStatus:
    """Save the state of a running run and stop it."""
    if options.env is not None:
        from training.cluster import commands

        return commands.stop(options)
    run = _chosen(options)
    run.request_stop()
    print(f"{run.name} saves and stops at its next step; resume it: make resume NAME={run.argument}")
    return ExitStatus.DONE


@COMMANDS.command("train")
def job(options: JobYamlOptions) -> ExitStatus:
    """Write what `train --env` would submit, as YAML; needs no cluster."""
    from training.cluster import commands

    return commands.job(options)


@COMMANDS.command("look at runs")
def jobs(options: JobsOptions) -> ExitStatus:
    """List the runs of this machine, or the jobs of a cluster, newest first."""
    if options.env is not None:
        from training.cluster import commands

        return commands.jobs(options)
    from training.joblist import job_table

    print(job_table(runs(options.root)))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def logs(options: LogsOptions) -> ExitStatus:
    """Print the events of a run, or the log of one of its ranks."""
    if options.env is not None:
        from training.cluster import commands

        return commands.logs(options)
    run = _chosen(options)
    path = run.logs / f"rank-{options.rank}.jsonl" if options.rank is not None else run.events
    if path.exists():
        sys.stdout.write(path.read_text(encoding="utf-8"))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def monitor(options: MonitorOptions) -> ExitStatus:
    """Watch a run in the terminal, without touching it."""
    from observability.monitor import watch

    watch(_chosen(options).path, once=options.once)
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def report(options: RunOptions) -> ExitStatus:
    """Regenerate a run's report."""
    from observability.report import write_report

    print(write_report(_chosen(options).path))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def verify(options: RunOptions) -> ExitStatus:
    """Verify the sizes and sha256 of every checkpoint of a run; fails if one is damaged or there is none."""
    from training.checkpoint.manifest import MANIFEST_FILE
    from training.checkpoint.store import verify_run

    run = _chosen(options)
    committed = {path: problems for path, problems in verify_run(run.path) if (path / MANIFEST_FILE).exists()}
    for path, problems in committed.items():
        print(f"{path}: {'; '.join(problems) if problems else 'good'}")
    if not committed:
        print(f"{run.path}: no checkpoint")
    return ExitStatus.FAILED if not committed or any(committed.values()) else ExitStatus.DONE


@COMMANDS.command("MLflow")
def ui(options: UiOptions) -> ExitStatus:
    """Serve the MLflow UI on the embedded store until interrupted."""
    from training.tracking.ui import serve_ui

    serve_ui(port=options.port)
    return ExitStatus.DONE


@COMMANDS.command("MLflow")
def sync(options: RunOptions) -> ExitStatus:
    """Upload to MLflow what it lacks of one run, or of all runs."""
    from training.tracking.sync import sync as send

    chosen = [_chosen(options)] if options.run else runs(options.root)
    return send([run.path for run in chosen])


@COMMANDS.command("settings")
def schema(_options: NoOptions) -> ExitStatus:
    """Print the JSON Schema of the settings."""
    from training.config import json_schema

    print(json_schema.text(), end="")
    return ExitStatus.DONE


def _chosen(options: RunOptions) -> RunDirectory:
    return RunDirectory.open(options.run, root=options.root) if options.run else RunDirectory.newest(options.root)
