"""The options of the trainer's commands: one dataclass per command, composed of shared ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from infra.spec.command_line import argument, option
from training.config.sources import FLAG_KEYS, GPUS_PER_WORKER
from training.rundir import RUN_DIRECTORY, default_root


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
class ChangeOptions:
    """Single settings."""

    set: tuple[str, ...] = option("set one key, e.g. loop.clip_norm=0.5; repeatable", metavar="KEY=VALUE")


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ChangeOptions):
    """The settings of a run: files, flags, single keys. Flags are text; the schema converts them."""

    config: tuple[str, ...] = option("YAML file or name of a shipped one; repeatable, later ones win")
    model: str | None = _flag("model")
    dataset: str | None = _flag("dataset")
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
    gpus_per_worker: str | None = option("0 or 1: GPUs per rank; for more GPUs raise --num-workers", metavar="N")

    def flags(self) -> dict[str, str | bool | None]:
        """The plain flags by name, as `training.config.load.load_settings` takes them."""
        return {name: vars(self)[name] for name in (*FLAG_KEYS, GPUS_PER_WORKER)}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster and team; without `--env` this machine."""

    TITLE: ClassVar = "on a cluster"

    env: str | None = option("environment of the stack")
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")
    team: str | None = option("team of the job; required if the stack has several")


@dataclass(frozen=True, kw_only=True)
class SubmissionOptions(ClusterOptions):
    """How a job is queued and kept."""

    TITLE: ClassVar = ClusterOptions.TITLE

    group: str | None = option("GPU node group (default: the cheapest that fits)")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue (default: normal)")
    deadline_hours: float | None = option("time limit from admission, in hours", metavar="H")
    restarts: int | None = option("times a failed driver is retried on a new cluster (default: 0)", metavar="N")
    keep_days: float | None = option("days to keep the job after its end", metavar="D")


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
class TrainOptions(FollowOptions, SubmissionOptions, SettingsOptions):
    """Options of `train`."""

    print_config: bool = option("print all settings and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(FollowOptions, SubmissionOptions, ChangeOptions, RunOptions):
    """Options of `resume`."""


@dataclass(frozen=True, kw_only=True)
class JobYamlOptions(SubmissionOptions, SettingsOptions):
    """Options of `job`."""

    env: str = option("environment of the stack", ...)
    out: str | None = option("file to write (default: standard output)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class JobsOptions(ClusterOptions, RootOptions):
    """Options of `jobs`."""


@dataclass(frozen=True, kw_only=True)
class LogsOptions(ClusterOptions, RunOptions):
    """Options of `logs`."""

    rank: int | None = option("print the log of this rank")
    pod: str | None = option("print the log of this pod of the job")


@dataclass(frozen=True, kw_only=True)
class StopOptions(DetachOptions, ClusterOptions, RunOptions):
    """Options of `stop`."""


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(RunOptions):
    """Options of `monitor`."""

    once: bool = option("print the current state and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Options of `ui`."""

    port: int = option("port on loopback (default: an ephemeral port)", 0)
