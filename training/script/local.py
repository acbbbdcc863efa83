"""A command on this machine, with the variables that it has on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from infra.spec.signals import ENDINGS, handling
from platform_charts.jobs.request import timed_name
from training.code.archive import read_archive
from training.code.identity import is_archive
from training.code.kept import keep
from training.code.selection import require_files, select
from training.errors import ExitStatus, SettingsError
from training.launch.processes import die_with_parent
from training.network import free_port
from training.options.scripts import CommandOptions
from training.script.command_line import SHELL, check_files, check_program, check_syntax, title
from training.script.ending import describe_status, remedy_of
from training.script.process import exit_status
from training.script.variables import NodePlace, environment_of, make_output_folder

_LOOPBACK = "127.0.0.1"


def run(options: CommandOptions) -> int:
    """Run the command in the code folder, or else in the current one; returns its exit status.

    It shares this terminal, so it can read from it, and Ctrl-C reaches it.

    Raises:
        PlatformError: the command line, the code folder or the folder for its output is invalid.
    """
    check_syntax(options.cmd)
    name = options.name or timed_name(title(options.cmd), now=datetime.now().astimezone())
    if Path(name).name != name or name in {".", ".."}:
        raise SettingsError(f"invalid name={name!r}: it names a folder under {options.root}")
    output = (options.root / name).resolve()
    code, files = _code_folder(options, output)
    folder = code or Path.cwd()
    check_files(options.cmd, files, folder=str(folder), root=folder)
    place = NodePlace(
        rank=0,
        nodes=1,
        processes=options.workers,
        cpus=None if "OMP_NUM_THREADS" in os.environ else len(os.sched_getaffinity(0)),
        master_address=_LOOPBACK,
        master_port=free_port(_LOOPBACK),
    )
    environment = environment_of(os.environ, place, output=output, code=code)
    if options.use_gpu is False:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    check_program(options.cmd, environment=environment)
    make_output_folder(output)
    status, is_interrupted = _await(options.cmd, environment, folder)
    if is_interrupted:
        return ExitStatus.INTERRUPTED
    if status != 0:
        remedy = remedy_of(status)
        said = f"{options.cmd!r} {describe_status(status)}" + (f"\n  remedy: {remedy}" if remedy else "")
        print(f"error: {said}", file=sys.stderr)
    return status


def _code_folder(options: CommandOptions, output: Path) -> tuple[Path | None, Collection[str]]:
    """The code folder and its files: the folder itself, whose changes the next command sees, or that of an unpacked archive."""
    if options.code is None:
        return None, [one.name for one in Path.cwd().iterdir() if one.is_file()]
    folder = options.code
    if is_archive(options.code):
        archive = read_archive(options.code)
        make_output_folder(output)
        folder = keep(output, archive).folder
    selection = select(folder)
    require_files(folder, selection)
    return folder.resolve(), selection.files


def _await(text: str, environment: dict[str, str], folder: Path) -> tuple[int, bool]:
    """Exit status of the command, and whether a signal asked it to end."""
    process = subprocess.Popen(
        [SHELL, "-c", text],
        cwd=folder,
        env=environment,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call
    )
    with _passing_signals_on(process) as asked:
        status = process.wait()
    return exit_status(status), bool(asked)


@contextmanager
def _passing_signals_on(process: subprocess.Popen[bytes]) -> Iterator[list[signal.Signals]]:
    """Pass SIGTERM and SIGHUP on; the terminal itself sends Ctrl-C to the command. Yields the signals that have come."""
    asked: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        asked.append(number)
        if number != signal.SIGINT:
            process.send_signal(number)

    with handling(ENDINGS, pass_on):
        yield asked
