"""The options of the trainer's commands: one dataclass per command, composed of shared ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from infra.spec.command_line import argument, given_flags, option
from training.config.sources import FLAG_KEYS, GPUS_PER_WORKER
from training.errors import SettingsError
from training.profiling.request import MOST_STEPS
from training.rundir import RUN_DIRECTORY, default_root

_CLUSTER = "on a cluster"
_SCHEDULE = "on a schedule"

_CLUSTER_GROUPS = (_CLUSTER, _SCHEDULE)
"""Titles of the groups of options that have no effect on this machine."""


def _flag(name: str) -> str | None:
    value: str | None = option(f"sets {FLAG_KEYS[name]}", metavar="VALUE")
    return value


@dataclass(frozen=True, kw_only=True)
class RootOptions:
    """The folder of runs."""

    root: Path = option(
        f"folder of the runs (default: ${RUN_DIRECTORY}, else .local/runs)", default_factory=default_root
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(RootOptions):
    """The run to work on."""

    run: str | None = argument("name or folder of the run, e.g. first or ./first (default: the newest)")


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """A new project."""

    project: str | None = argument("name of a folder to write beside the checkout, or the path of a folder elsewhere")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Single settings."""

    set: tuple[str, ...] = option("set one key, e.g. loop.clip_norm=0.5; repeatable", metavar="KEY=VALUE")


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ChangeOptions):
    """The settings of a run: files, flags, single keys. Flags are text; the schema converts them."""

    config: tuple[str, ...] = option("YAML file or name of a shipped one; repeatable, later ones win")
    model: str | None = _flag("model")
    dataset: str | None = _flag("dataset")
    objective: str | None = _flag("objective")
    data_path: str | None = _flag("data_path")
    num_workers: str | None = _flag("num_workers")
    use_gpu: bool | None = option(f"sets {FLAG_KEYS['use_gpu']}")
    epochs: str | None = _flag("epochs")
    batch: str | None = _flag("batch")
    lr: str | None = _flag("lr")
    seed: str | None = _flag("seed")
    name: str | None = _flag("name")
    launcher: str | None = _flag("launcher")
    nodes: str | None = _flag("nodes")
    node_rank: str | None = _flag("node_rank")
    rendezvous: str | None = _flag("rendezvous")
    gpus_per_worker: str | None = option(
        "GPUs of each worker: 0 or 1, or more with strategy.name=pipeline or hsdp, whose ranks then share one copy of the model",
        metavar="N",
    )

    def flags(self) -> dict[str, str | bool | None]:
        """The plain flags by name, as `training.config.load.load_settings` takes them."""
        return {name: vars(self)[name] for name in (*FLAG_KEYS, GPUS_PER_WORKER)}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster and team; without `--env` this machine."""

    TITLE: ClassVar = _CLUSTER

    env: str | None = option("environment of the stack")
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")
    team: str | None = option("team of the job; required if the stack has several")


@dataclass(frozen=True, kw_only=True)
class SubmissionOptions(ClusterOptions):
    """How a job is queued and kept."""

    TITLE: ClassVar = ClusterOptions.TITLE

    group: str | None = option(
        "GPU node group, or several with commas, of which the queue takes the first with room (default: the cheapest that fits)"
    )
    gpu_model: str | None = option("GPU model, e.g. a10g, instead of a group: the queue chooses one", metavar="MODEL")
    spot: bool | None = option("with --gpu-model: allow spot nodes, after other capacity")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue (default: normal)")
    deadline_hours: float | None = option("time limit from admission, in hours", metavar="H")
    restarts: int | None = option(
        "times a failed driver is retried on a new cluster (default: 1, of `run` 0)", metavar="N", at_least=0
    )
    keep_days: float | None = option("days to keep the job after its end", metavar="D")
    image: str | None = option(
        "image of the pods, by digest, as `make image FROM=…` prints it (default: the release's)", metavar="REF"
    )


@dataclass(frozen=True, kw_only=True)
class DetachOptions:
    """Whether to wait."""

    TITLE: ClassVar = ClusterOptions.TITLE

    detach: bool = option("return without waiting for the job", default=False)


@dataclass(frozen=True, kw_only=True)
class FollowOptions(DetachOptions):
    """How a job is followed."""

    TITLE: ClassVar = ClusterOptions.TITLE

    stop_on_interrupt: bool = option("Ctrl-C stops the job (default: it keeps running)", default=False)


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """When a job is submitted again and again."""

    TITLE: ClassVar = _SCHEDULE

    schedule: str | None = option('times to run at, in cron\'s form, e.g. "0 2 * * *"; with --env', metavar="CRON")
    time_zone: str = option("zone of these times (default: Etc/UTC)", "Etc/UTC", metavar="ZONE")
    concurrency: Literal["forbid", "replace", "allow"] = option(
        "while an earlier job of the schedule has not ended: skip the new one, stop the earlier one, or run both",
        "forbid",
    )
    history: int = option("ended jobs of the schedule to keep (default: 10)", 10, metavar="N", at_least=0)


@dataclass(frozen=True, kw_only=True)
class OwnCodeOptions:
    """Code of the user's own."""

    code: Path | None = option("folder with your own code, or an archive of it that a run has kept", metavar="PATH")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(FollowOptions, SubmissionOptions, ScheduleOptions, OwnCodeOptions, SettingsOptions):
    """Options of `train`."""

    print_config: bool = option("print all settings and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class DataOptions(OwnCodeOptions, SettingsOptions):
    """Options of `data`. The samples of a run are read as the run would; with `--model` or `--config` its step is measured too."""

    samples: int | None = option("read this many samples of each split, chosen at random (default: all)", at_least=1)
    gpus: int = option("GPUs of the run whose loader processes are computed", 1, metavar="N", at_least=1)
    rate: float | None = option("samples per second that one GPU trains on (default: a step is measured)", at_least=0)
    out: Path | None = option("picture of some samples to write (default: .local/data/DATASET.png)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(FollowOptions, SubmissionOptions, OwnCodeOptions, ChangeOptions, RunOptions):
    """Options of `resume`."""


@dataclass(frozen=True, kw_only=True)
class JobYamlOptions(SubmissionOptions, OwnCodeOptions, SettingsOptions):
    """Options of `job`."""

    env: str = option("environment of the stack", ...)
    out: str | None = option("file to write (default: standard output)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class CommandPodsOptions:
    """What a command of the user's own has on a cluster only."""

    TITLE: ClassVar = ClusterOptions.TITLE

    cpus: int = option("cores of each pod without GPUs", 4, at_least=1)
    out: str | None = option(
        "write the job as YAML to this file, - is standard output; submits nothing", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class CommandOptions(FollowOptions, CommandPodsOptions, SubmissionOptions, OwnCodeOptions, RootOptions):
    """Options of `run`."""

    cmd: str = option('what a shell runs on every node, e.g. "torchrun train.py"', ..., metavar="COMMAND")
    workers: int = option("processes of torchrun in all: one per GPU; without GPUs one per pod", 1, at_least=1)
    use_gpu: bool | None = option("one GPU per worker (default: with --group or --gpu-model)")
    name: str | None = option("name of the job and of its folder (default: the script's, and the time)")


@dataclass(frozen=True, kw_only=True)
class RunOnNodesOptions(RootOptions):
    """Options of `run-on-nodes`."""

    cmd: str = option("what a shell runs on every node", ..., metavar="COMMAND")
    name: str = option("name of the job and of its folder", ...)
    nodes: int = option("nodes of the cluster to run it on", 1, at_least=1)
    gpus: int = option("GPUs of each node", 0, at_least=0)
    cpus: int = option("cores of each node", 1, at_least=1)
    resumes: bool = option("start it again on a cluster whose head was lost", default=False)
    code: Path | None = option("archive of the code, which the job's folder keeps", metavar="FILE")
    start_minutes: float = option("time for the nodes to be there", 5.0, metavar="M", at_least=0)
    address: str = option("address of the Ray cluster", "auto")


@dataclass(frozen=True, kw_only=True)
class JobsOptions(ClusterOptions, RootOptions):
    """Options of `jobs`."""


@dataclass(frozen=True, kw_only=True)
class SchedulesOptions(ClusterOptions):
    """Options of `schedules`."""

    env: str = option("environment of the stack", ...)


@dataclass(frozen=True, kw_only=True)
class UnscheduleOptions(SchedulesOptions):
    """Options of `unschedule`."""

    name: str | None = argument("name of the schedule")
    pause: bool = option("keep the schedule, but start no job; `train --schedule` starts it again", default=False)


@dataclass(frozen=True, kw_only=True)
class LogsOptions(ClusterOptions, RunOptions):
    """Options of `logs`."""

    rank: int | None = option("print the log of this rank", at_least=0)
    pod: str | None = option("on a cluster: print the log of this pod of the job")
    days: float = option("how far back to search the logs of pods that are gone", 14.0, metavar="N", at_least=0)


@dataclass(frozen=True, kw_only=True)
class PostmortemOptions(ClusterOptions, RunOptions):
    """Options of `postmortem`."""

    out: Path | None = option(
        "file of the page (default: in the run's folder; of a job .local/postmortem/JOB.html)", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class CostOptions(ClusterOptions, RunOptions):
    """Options of `cost`."""


@dataclass(frozen=True, kw_only=True)
class StopOptions(DetachOptions, ClusterOptions, RunOptions):
    """Options of `stop`."""


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """When a session ends by itself, and what it holds until then."""

    gpus: int = option("GPUs of the session", 1, at_least=0)
    hours: float = option("hours after which it ends in any case", 8.0, metavar="H", at_least=0)


@dataclass(frozen=True, kw_only=True)
class SessionOptions(SessionLimits):
    """Options of `session`."""

    idle_minutes: float = option("minutes without use after which it ends", 30.0, metavar="M", at_least=0)
    usd_per_hour: float | None = option("price of its GPUs, for the cost at its end", metavar="USD")
    address: str = option("address of the Ray cluster", "auto")


@dataclass(frozen=True, kw_only=True)
class SessionNameOptions(ClusterOptions):
    """The session to work on."""

    TITLE: ClassVar = ClusterOptions.TITLE

    env: str = option("environment of the stack", ...)
    run: str | None = argument("name of the session, with or without `session-`")


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """The code to work on."""

    TITLE: ClassVar = ClusterOptions.TITLE

    code: Path | None = option("folder of yours to keep equal to the session's code folder", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class NewSessionOptions(CodeOptions, SessionLimits, SessionNameOptions):
    """A session to start."""

    idle: str = option("time without use after which it ends, e.g. 45m or 2h", "30m", metavar="TIME")
    workers: int = option("worker pods of a session without GPUs", 1, at_least=1)
    cpus: int = option("cores of a worker pod of a session without GPUs", 4, at_least=1)
    group: str | None = option(
        "GPU node group, or several with commas, of which the queue takes the first with room (default: the cheapest that fits)"
    )
    gpu_model: str | None = option("GPU model, e.g. a10g, instead of a group: the queue chooses one", metavar="MODEL")
    spot: bool | None = option("with --gpu-model: allow spot nodes, after other capacity")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue (default: normal)")
    image: str | None = option("image of the pods, by digest (default: the release's)", metavar="REF")


@dataclass(frozen=True, kw_only=True)
class ClusterCommandOptions(DetachOptions, NewSessionOptions):
    """Options of `cluster`."""


@dataclass(frozen=True, kw_only=True)
class NotebookOptions(NewSessionOptions):
    """Options of `notebook`."""

    port: int = option("local port (default: 8888, or another that is free)", 0)


@dataclass(frozen=True, kw_only=True)
class ShellOptions(CodeOptions, SessionNameOptions):
    """Options of `shell`."""

    head: bool = option("open it in the head, which has no GPU", default=False)


@dataclass(frozen=True, kw_only=True)
class ForwardOptions(CodeOptions, SessionNameOptions):
    """Options of `forward`."""

    port: int = option("local port", 8265, at_least=1, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class OpenOptions(ClusterOptions):
    """Options of `open`."""

    what: tuple[str, ...] = argument("UIs to open: mlflow, grafana, prometheus, alertmanager, ray", ())
    env: str = option("environment of the stack", ...)
    job: str | None = option("job or session whose Ray dashboard to open (default: the newest session, else job)")
    port: int = option("local port (default: the UI's own, or another that is free)", 0, at_least=0, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class DataSyncOptions(DetachOptions):
    """Options of `data-sync`."""

    source: str | None = argument("s3://BUCKET/FOLDER; the environment's storage.dataset_sources lists the buckets")
    destination: str | None = argument("datasets/NAME, which jobs see as /mnt/datasets/NAME")
    workers: int = option("threads (default: 16)", 16, at_least=1)
    delete: bool = option("delete files copied earlier that the source no longer has", default=False)
    accept_unverified: bool = option("accept objects without a checksum that can be computed", default=False)
    env: str = option("environment of the stack", ...)
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class BackupOptions(DetachOptions):
    """Options of `backup`."""

    json: bool = option("print the outcome as JSON, and the log on standard error", default=False)
    env: str = option("environment of the stack", ...)
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class RestoreDrillOptions(BackupOptions):
    """Options of `restore-drill`."""

    backup: str | None = option("name of the backup (default: the newest)", metavar="NAME")
    keep: bool = option(
        "keep what was restored, as restored_mlflow and restored_mlflow_auth: docs/BACKUP.md", default=False
    )


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(RunOptions):
    """Options of `monitor`."""

    once: bool = option("print the current state and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class MonitorUpOptions(RootOptions):
    """Options of `monitor-up`."""

    port: int = option("port of Prometheus on loopback (default: 9090 if it is free)", 0, at_least=0, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ClusterOptions, RunOptions):
    """Options of `profile`."""

    steps: int = option("steps to profile (default: 10)", 10, at_least=1, at_most=MOST_STEPS)
    memory: bool = option("also write a snapshot of each GPU's memory", default=False)


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Options of `ui`."""

    port: int = option("port on loopback (default: an ephemeral port)", 0, at_least=0, at_most=65535)


def check_local(options: object, *others: str) -> None:
    """Refuse what only a cluster does, because a forgotten `ENV=…` would otherwise train on this machine.

    Raises:
        SettingsError: such an option is given.
    """
    given = [*others, *(flag for group in _CLUSTER_GROUPS for flag in given_flags(options, group))]
    if given:
        raise SettingsError(f"{given[0]} needs a cluster", remedy="name its environment: ENV=… (--env)")
