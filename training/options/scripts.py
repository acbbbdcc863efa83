"""The options of `run`, a command of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from infra.spec.command_line import option
from training.options.cluster import ClusterOptions, FollowOptions, SubmissionOptions
from training.options.given import OwnCodeOptions, RootOptions


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
