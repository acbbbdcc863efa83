"""The command line: `python -m training COMMAND`. `make train` and the like call it.

With `--env` a command works on the cluster of that environment. Commands import their heavier modules themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.spec.command_line import CommandLine, NoOptions, given_flags
from infra.spec.variables.inventory import described
from observability.quantities import counted
from training.checkpoint.remote.run_files import bring_back
from training.code.given import configurations, given_code, importable
from training.code.kept import current
from training.config.load import load_settings, render
from training.conformance.options import ConformanceOptions
from training.errors import ExitStatus, SettingsError
from training.options.cluster import check_local
from training.options.given import RunOptions
from training.options.runs import (
    CostOptions,
    JobsOptions,
    LogsOptions,
    MonitorOptions,
    MonitorUpOptions,
    PostmortemOptions,
    ProfileOptions,
    ResizeOptions,
    StopOptions,
    UiOptions,
)
from training.options.scripts import CommandOptions, RunOnNodesOptions
from training.options.services import BackupOptions, DataSyncOptions, OpenOptions, RestoreDrillOptions
from training.options.sessions import (
    ClusterCommandOptions,
    ForwardOptions,
    NotebookOptions,
    SessionOptions,
    ShellOptions,
)
from training.options.training import (
    DataOptions,
    JobYamlOptions,
    NewOptions,
    ResumeOptions,
    SchedulesOptions,
    TrainOptions,
    UnscheduleOptions,
)
from training.options.vms import AnyscaleOptions, RayClusterOptions
from training.rundir import RUN_DIRECTORY, RunDirectory, runs

if TYPE_CHECKING:
    from training.code.archive import CodeArchive

COMMANDS = CommandLine(
    "python -m training",
    "Train models, on this machine or with --env on a cluster, and look at their runs.",
    variables=described(
        RUN_DIRECTORY, "RTP_TRACKING_URI", "RTP_EXPERIMENT", "RTP_STACK_OUTPUTS", "RTP_LOKI_URL", "KUBECONFIG"
    ),
    version="training.environment:versions",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `ExitStatus`."""
    return COMMANDS.main(arguments)


@COMMANDS.command("train")
def train(options: TrainOptions) -> int:
    """Train a new run, or resume the one of the given name; with --env submit and follow a job."""
    if options.ray is not None:
        from training.vms import commands as on_machines

        return on_machines.train(options)
    if options.schedule is not None:
        from training.cluster import schedule_commands

        return schedule_commands.schedule(options)
    if options.env is not None:
        from training.cluster import commands

        return commands.train(options)
    check_local(options)
    archive = given_code(options.code) or _code_of_named_run(options)
    with importable(archive) as code:
        config = configurations(options.config, code)
        settings = load_settings(config, overrides=options.set, flags=options.flags())
    if options.print_config:
        print(render(settings), end="")
        return ExitStatus.DONE
    from training.drive import drive

    return drive(settings, archive)


@COMMANDS.command("train")
def resume(options: ResumeOptions) -> int:
    """Resume a run from its newest good checkpoint, with its settings and the changes of the command line."""
    if options.ray is not None:
        from training.vms import commands as on_machines

        return on_machines.resume(options)
    if options.env is not None:
        from training.cluster import commands

        return commands.resume(options)
    check_local(options)
    bring_back(options.run, options.set, root=options.root)
    run = _chosen(options)
    archive = given_code(options.code) or current(run.path)
    with importable(archive):
        settings = run.settings(options.set)
    from training.drive import drive

    return drive(settings, archive)


@COMMANDS.command("train")
def stop(options: StopOptions) -> ExitStatus:
    """Save the state of a running run and stop it."""
    if options.ray is not None:
        from training.vms import commands as on_machines

        return on_machines.stop(options)
    if options.env is not None:
        from training.cluster import commands

        return commands.stop(options)
    check_local(options)
    run = _chosen(options)
    run.request_stop()
    print(f"{run.name} saves and stops at its next step; resume it: make resume NAME={run.argument}")
    return ExitStatus.DONE


@COMMANDS.command("train")
def resize(options: ResizeOptions) -> ExitStatus:
    """Let a running elastic run continue with another number of workers, after it commits a checkpoint."""
    if options.env is not None:
        from training.cluster import job_size

        return job_size.resize(options)
    check_local(options)
    run = _chosen(options)
    run.request_workers(options.workers)
    print(f"{run.name} commits its next step and continues with at most {counted(options.workers, 'worker')}")
    return ExitStatus.DONE


@COMMANDS.command("train")
def new(options: NewOptions) -> ExitStatus:
    """Write a project with a model, a dataset and an objective of your own, which trains as it is."""
    from training import new_project

    print(new_project.describe(new_project.create(options.project)))
    return ExitStatus.DONE


@COMMANDS.command("train")
def job(options: JobYamlOptions) -> ExitStatus:
    """Write what `train --env` would submit, as YAML; needs no cluster."""
    from training.cluster import commands

    return commands.job(options)


@COMMANDS.command("train")
def run(options: CommandOptions) -> int:
    """Run any command, on this machine or with --env as a job on a cluster, with the variables of torchrun."""
    if options.env is not None:
        from training.cluster import commands

        return commands.run(options)
    check_local(options)
    from training.script import local

    return local.run(options)


@COMMANDS.command("train")
def run_on_nodes(options: RunOnNodesOptions) -> int:
    """Run a command on every node of a Ray cluster: the program of the job that `run --env` submits."""
    from training.script import on_nodes

    return on_nodes.run(options)


@COMMANDS.command("train")
def unschedule(options: UnscheduleOptions) -> ExitStatus:
    """End or pause a schedule; its jobs that run go on."""
    from training.cluster import schedule_commands

    return schedule_commands.unschedule(options)


@COMMANDS.command("look at runs")
def schedules(options: SchedulesOptions) -> ExitStatus:
    """List the schedules of a cluster with their next and last job."""
    from training.cluster import schedule_commands

    return schedule_commands.schedules(options)


@COMMANDS.command("train")
def ray_cluster(options: RayClusterOptions) -> ExitStatus:
    """Write Ray's cluster-launcher file for machines in EC2 or of your own, which need no Kubernetes; `train --ray` uses it."""
    from training.vms import command

    return command.ray_cluster(options)


@COMMANDS.command("train")
def anyscale(options: AnyscaleOptions) -> ExitStatus:
    """Write a job and its machines for Anyscale, from the settings and the stack that a RayJob is made of."""
    from training.vms import anyscale_command

    return anyscale_command.anyscale(options)


@COMMANDS.command("interactive work")
def cluster(options: ClusterCommandOptions) -> int:
    """Start a Ray cluster through the queue; it ends by itself when nobody uses it."""
    from training.cluster import sessions

    return sessions.cluster(options)


@COMMANDS.command("interactive work")
def notebook(options: NotebookOptions) -> int:
    """Open the notebooks of the documentation in JupyterLab; with --env JupyterLab in a session, which is started if it does not run."""
    if options.env is not None:
        from training.cluster import notebook as command

        return command.notebook(options)
    check_local(options, *(flag for flag in given_flags(options, "") if flag != "--port"))
    from training.jupyterlab import start_jupyterlab
    from training.notebooks import copy_notebooks

    file = copy_notebooks(options.run)
    print(file)
    return start_jupyterlab(file, port=options.port or None)


@COMMANDS.command("interactive work")
def shell(options: ShellOptions) -> ExitStatus:
    """Open a shell in a pod of a session."""
    from training.cluster import sessions

    return sessions.shell(options)


@COMMANDS.command("interactive work")
def forward(options: ForwardOptions) -> ExitStatus:
    """Forward a local port to the dashboard and job server of a session."""
    from training.cluster import sessions

    return sessions.forward(options)


@COMMANDS.command("interactive work")
def session(options: SessionOptions) -> ExitStatus:
    """Keep a Ray cluster until nobody uses it: the program of a session's job."""
    from training.interactive import session as program

    return program.run(options)


@COMMANDS.command("data")
def data(options: DataOptions) -> ExitStatus:
    """Read a dataset and print its samples, classes, damaged files, and how many loader processes a run needs."""
    with importable(given_code(options.code)) as code:
        config = configurations(options.config, code)
        settings = load_settings(config, overrides=options.set, flags=options.flags())
        from training.inspection import command

        return command.inspect(settings, options)


@COMMANDS.command("data")
def data_sync(options: DataSyncOptions) -> ExitStatus:
    """Copy a folder of an S3 bucket to the shared datasets of a cluster, verified; for its administrators."""
    from training.cluster import data_sync as command

    return command.data_sync(options)


@COMMANDS.command("data")
def backup(options: BackupOptions) -> ExitStatus:
    """Back MLflow of an environment up now, as each night; for its administrators."""
    from training.cluster import backup as commands

    return commands.backup(options)


@COMMANDS.command("data")
def restore_drill(options: RestoreDrillOptions) -> ExitStatus:
    """Restore a backup of MLflow beside its databases, compare and drop it; exits with 1 if anything differs."""
    from training.cluster import backup as commands

    return commands.restore_drill(options)


@COMMANDS.command("look at runs")
def jobs(options: JobsOptions) -> ExitStatus:
    """List the runs of this machine, or the jobs of a cluster, newest first."""
    if options.ray is not None:
        from training.vms import commands as on_machines

        return on_machines.jobs(options)
    if options.env is not None:
        from training.cluster import commands

        return commands.jobs(options)
    check_local(options)
    from training.joblist import job_table

    print(job_table(runs(options.root)))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def logs(options: LogsOptions) -> int:
    """Print the events of a run, or the log of one of its ranks."""
    if options.ray is not None:
        from training.vms import commands as on_machines

        return on_machines.logs(options)
    if options.env is not None:
        from training.cluster import commands

        return commands.logs(options)
    check_local(options, *(["--pod"] if options.pod else []))
    run = _chosen(options)
    path = run.logs / f"rank-{options.rank}.jsonl" if options.rank is not None else run.events
    if options.rank is not None and not path.exists():
        ranks = sorted(int(one.stem.removeprefix("rank-")) for one in run.logs.glob("rank-*.jsonl"))
        raise SettingsError(
            f"run {run.name} has no log of rank {options.rank}",
            remedy=f"ranks that have written: {', '.join(map(str, ranks)) or 'none yet'}",
        )
    if path.exists():
        sys.stdout.write(path.read_text(encoding="utf-8"))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def monitor(options: MonitorOptions) -> ExitStatus:
    """Watch a run in the terminal, without touching it."""
    from observability.monitor import watch
    from training.monitoring.firing import FiringAlerts

    run = _chosen(options)
    state = watch(run.path, is_running=run.is_running, once=options.once, alerts=FiringAlerts(run=run.name))
    if state == "killed":
        from training import postmortem

        print(postmortem.brief(run))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def monitor_up(options: MonitorUpOptions) -> ExitStatus:
    """Serve Prometheus, and Grafana where it is installed, for the runs of this machine, until Ctrl-C."""
    from training.monitoring.command import monitor_up as serve

    serve(options.root, port=options.port)
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def profile(options: ProfileOptions) -> ExitStatus:
    """Profile steps of a running run and say what limits it; show the newest profile of one that has ended."""
    from training.profiling import command

    return command.profile(options)


@COMMANDS.command("look at runs")
def report(options: RunOptions) -> ExitStatus:
    """Regenerate a run's report."""
    from observability.report import write_report

    run = _chosen(options)
    print(write_report(run.path, is_running=run.is_running()))
    return ExitStatus.DONE


@COMMANDS.command("look at runs")
def postmortem(options: PostmortemOptions) -> ExitStatus:
    """Say why a run or, with --env, a job ended, and write a page of all that was kept of it."""
    from training import postmortem

    if options.env is not None:
        from training.cluster import postmortem as of_job

        case = of_job.case_of(options)
        return postmortem.show(case, options.out or of_job.FOLDER / f"{case.name}.html")
    check_local(options)
    run = _chosen(options)
    return postmortem.show(postmortem.case_of(run), options.out or run.path / postmortem.PAGE)


@COMMANDS.command("look at runs")
def cost(options: CostOptions) -> ExitStatus:
    """Print what a run has cost, or with --env a job, or all jobs of a team."""
    if options.env is not None:
        from training.cluster import cost as on_cluster

        return on_cluster.cost(options)
    check_local(options)
    from training.run_cost import describe_cost

    print(describe_cost(_chosen(options)))
    return ExitStatus.DONE


@COMMANDS.command("look at clusters")
def conformance(options: ConformanceOptions) -> ExitStatus:
    """Check that a live cluster does what its release promises: nodes, network, storage, training, recovery, policies, metrics."""
    from training.cluster.conformance import command

    return command.conformance(options)


@COMMANDS.command("look at runs")
def verify(options: RunOptions) -> ExitStatus:
    """Verify the sizes and sha256 of every checkpoint of a run, in its folder and its bucket; fails if one is damaged or there is none."""
    from training.checkpoint.manifest import MANIFEST_FILE
    from training.checkpoint.remote.verify import verify_bucket
    from training.checkpoint.store import verify_run

    run = _chosen(options)
    committed = {str(path): problems for path, problems in verify_run(run.path) if (path / MANIFEST_FILE).exists()}
    committed |= verify_bucket(run)
    for path, problems in committed.items():
        print(f"{path}: {'; '.join(problems) if problems else 'good'}")
    if not committed:
        print(f"{run.path}: no checkpoint")
    return ExitStatus.FAILED if not committed or any(committed.values()) else ExitStatus.DONE


@COMMANDS.command("look at runs")
def open_(options: OpenOptions) -> ExitStatus:
    """Open MLflow, Grafana, Prometheus, Alertmanager or Ray's dashboard of a cluster at local ports, logged in, until Ctrl-C."""
    from training.cluster.uis.command import open_uis

    return open_uis(options)


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


def _code_of_named_run(options: TrainOptions) -> CodeArchive | None:
    """The code that an existing run has kept, if the settings name one: its own models and datasets are in there."""
    if not (options.name or options.set or options.config):
        return None
    run = load_settings(options.config, overrides=options.set, flags=options.flags(), checks_names=False).run
    return current(run.directory / run.name) if run.name else None


def _chosen(options: RunOptions) -> RunDirectory:
    return RunDirectory.open(options.run, root=options.root) if options.run else RunDirectory.newest(options.root)
