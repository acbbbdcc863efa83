"""The options of the trainer's commands, one dataclass each, put together from what several commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from infra.spec.command_line import argument, option
from training.config.schema import RunSettings
from training.config.sources import FLAG_KEYS, GPUS_PER_WORKER

RUN_DIRECTORY = "RTP_RUN_DIRECTORY"


def _root() -> Path:
    return Path(os.environ.get(RUN_DIRECTORY) or RunSettings().directory)


def _flag(name: str) -> str | None:
    value: str | None = option(f"sets {FLAG_KEYS[name]}", metavar="VALUE")
    return value


@dataclass(frozen=True, kw_only=True)
class RootOptions:
    """Of which folder of runs."""

    root: Path = option(f"folder of the runs (${RUN_DIRECTORY}, else .local/runs)", default_factory=_root)


@dataclass(frozen=True, kw_only=True)
class RunOptions(RootOptions):
    """Which run."""

    run: str | None = argument("name or folder of the run; the newest by default")


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Single settings."""

    set: tuple[str, ...] = option("set one key, e.g. loop.clip_norm=0.5; may be repeated", metavar="KEY=VALUE")


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ChangeOptions):
    """The settings of a run: files, plain flags, single keys. Flags are text, which the schema gives its type."""

    config: tuple[str, ...] = option("YAML file or name of a shipped one; may be repeated, later ones win")
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
    gpus_per_worker: str | None = option("0 or 1: a rank drives one GPU; more GPUs take more workers", metavar="N")

    def flags(self) -> dict[str, str | bool | None]:
        """The plain flags by name, as `training.config.load.load_settings` takes them."""
        return {name: vars(self)[name] for name in (*FLAG_KEYS, GPUS_PER_WORKER)}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster; without `--env` this machine."""

    TITLE: ClassVar = "on a cluster"

    env: str | None = option("environment of the stack")
    outputs: Path | None = option("its outputs ($RTP_STACK_OUTPUTS); asks pulumi without it", metavar="FILE")
    kubeconfig: Path | None = option("a kubeconfig of its cluster ($KUBECONFIG)", metavar="FILE")
    team: str | None = option("whose namespace; may be left out where there is one team")


@dataclass(frozen=True, kw_only=True)
class SubmissionOptions(ClusterOptions):
    """How a job is queued and kept."""

    TITLE: ClassVar = ClusterOptions.TITLE

    group: str | None = option("GPU node group; the cheapest that fits without it")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue; normal by default")
    deadline_hours: float | None = option("hours the job may take from its admission on", metavar="H")
    restarts: int | None = option("times a failed driver is restarted on a new cluster; 0 by default", metavar="N")
    keep_days: float | None = option("days the job stays listed after its end", metavar="D")


@dataclass(frozen=True, kw_only=True)
class DetachOptions:
    """Whether to wait."""

    TITLE: ClassVar = ClusterOptions.TITLE

    detach: bool = option("do not wait for the job", default=False)


@dataclass(frozen=True, kw_only=True)
class FollowOptions(DetachOptions):
    """How a job is followed."""

    TITLE: ClassVar = ClusterOptions.TITLE

    stop_on_interrupt: bool = option("Ctrl-C stops the job; without this option it keeps running", default=False)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(FollowOptions, SubmissionOptions, SettingsOptions):
    """Of `train`."""

    print_config: bool = option("print the whole settings and end", default=False)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(FollowOptions, SubmissionOptions, ChangeOptions, RunOptions):
    """Of `resume`."""


@dataclass(frozen=True, kw_only=True)
class JobYamlOptions(SubmissionOptions, SettingsOptions):
    """Of `job`."""

    env: str = option("environment of the stack", ...)
    out: str | None = option("file to write; - or none prints it", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class JobsOptions(ClusterOptions, RootOptions):
    """Of `jobs`."""


@dataclass(frozen=True, kw_only=True)
class LogsOptions(ClusterOptions, RunOptions):
    """Of `logs`."""

    rank: int | None = option("the log of this rank instead")
    pod: str | None = option("what this pod of the job wrote instead")


@dataclass(frozen=True, kw_only=True)
class StopOptions(DetachOptions, ClusterOptions, RunOptions):
    """Of `stop`."""


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(RunOptions):
    """Of `monitor`."""

    once: bool = option("print one picture and end", default=False)


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Of `ui`."""

    port: int = option("port on loopback; any free one by default", 0)
