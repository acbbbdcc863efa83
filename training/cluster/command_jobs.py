"""Jobs that run a user's own command: from the command line to the request, and from a job on the cluster to its next submission."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime

from infra.spec.manifest import Manifest
from platform_charts.jobs.code import PackedCode
from platform_charts.jobs.rayjob import COMMAND_PROGRAM
from platform_charts.jobs.request import JobRequest, timed_name
from training.cluster.job_manifest import JobOptions
from training.code.archive import CodeArchive, file_names
from training.errors import SettingsError
from training.options.scripts import CommandOptions
from training.options.training import ResumeOptions
from training.script.command_line import check_files, check_syntax, title


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command and the pods that it needs.

    Attributes:
        text: the command line.
        workers: processes in all: one per GPU, or one per pod.
        gpus_per_worker: 1 or 0.
        cpus_per_worker: cores of a pod without GPUs; with GPUs a pod has their share of its node's cores.
    """

    text: str
    workers: int
    gpus_per_worker: int
    cpus_per_worker: int

    def request(self, name: str, *, team: str, options: JobOptions, code: PackedCode | None) -> JobRequest:
        """The request for its job.

        Args:
            name: name of the job.
            team: name of the team.
            options: the options of the job.
            code: code of the user's own.

        Raises:
            SettingsError: the name is not valid for a job, or no cluster can meet an option.
        """
        return JobRequest(
            name=name,
            kind="run",
            team=team,
            settings_yaml="",
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker,
            cpus_per_worker=self.cpus_per_worker,
            shell_command=self.text,
            code=code,
            **options.given(),
        )


def check_command(text: str, code: CodeArchive | None) -> None:
    """Refuse a command line that cannot run in a pod, before the stack is read.

    Raises:
        SettingsError: the shell cannot parse it, or it names a file that the code does not have.
    """
    check_syntax(text)
    if code is None:
        check_files(text, (), folder="the job's pods, which have no code folder")
    else:
        files = code.selection.files if code.selection is not None else file_names(code)
        check_files(text, files, folder=f"the code of {code.source}")


def command_of(arguments: CommandOptions) -> Command:
    """The command of a command line. A job that names GPUs has one per worker."""
    names_gpus = arguments.group is not None or arguments.gpu_model is not None
    has_gpus = names_gpus if arguments.use_gpu is None else arguments.use_gpu
    return Command(
        text=arguments.cmd,
        workers=arguments.workers,
        gpus_per_worker=int(has_gpus),
        cpus_per_worker=1 if has_gpus else arguments.cpus,
    )


def name_of(arguments: CommandOptions, *, now: datetime) -> str:
    """Name of the job: the given one, else that of its script with the time."""
    return arguments.name or timed_name(title(arguments.cmd), now=now)


def command_of_job(job: Manifest) -> Command:
    """The command of a job on the cluster, from its entrypoint."""
    words = shlex.split(job["spec"]["entrypoint"])[len(COMMAND_PROGRAM) :]
    given = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    nodes, gpus = int(given["nodes"]), int(given["gpus"])
    return Command(
        text=given["cmd"],
        workers=nodes * max(1, gpus),
        gpus_per_worker=1 if gpus else 0,
        cpus_per_worker=1 if gpus else int(given["cpus"]),
    )


def refuse_settings(arguments: ResumeOptions, name: str) -> None:
    """Refuse changes of settings, which a command does not have.

    Raises:
        SettingsError: there is one.
    """
    if arguments.set:
        raise SettingsError(
            f"--set {arguments.set[0]}: job {name} runs a command of its own, which has no settings",
            remedy="leave it out, or submit another command: make run CMD=…",
        )
