"""`run` on this machine, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.report_table import ran
from tests.training.cli.command import ROOT, assert_refused
from tests.training.cluster.commands import interruptible
from training.code.archive import pack
from training.code.identity import SUFFIX
from training.errors import ExitStatus

_SECONDS = 120

_ALL_REDUCE = """
import mine.part, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
number = torch.tensor([float(10 ** dist.get_rank())])
dist.all_reduce(number)
open(f"{os.environ['RTP_OUTPUT_FOLDER']}/rank-{dist.get_rank()}", "w").write(f"{int(number)} {mine.part.NAME}")
dist.destroy_process_group()
"""

_SAVES = """
import pathlib, signal, sys
def save(number, frame):
    pathlib.Path("saved").write_text(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code folder with a script that needs a package of its own."""
    folder = tmp_path / "my project"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "part.py").write_text("NAME = 'live'\n")
    (folder / "tools").mkdir()
    (folder / "tools" / "reduce.py").write_text(_ALL_REDUCE)
    (folder / "saves.py").write_text(_SAVES)
    return folder


@contextmanager
def running(*arguments: str, cwd: Path = ROOT, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The command, in a process group of its own, as a shell starts it."""
    with subprocess.Popen(
        interruptible("run", *arguments),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(*arguments: str, cwd: Path = ROOT, **variables: str) -> tuple[int, str, str]:
    """Exit status and streams of the command."""
    with running(*arguments, cwd=cwd, **variables) as process:
        out, err = process.communicate(timeout=_SECONDS)
        return process.returncode, out, err


@pytest.mark.extended
def test_torchrun_reduces_over_the_workers_with_the_packages_of_the_code_folder(code: Path, tmp_path: Path) -> None:
    ran("torchrun")
    given = ["--cmd=torchrun tools/reduce.py", f"--code={code}", "--workers=2", f"--root={tmp_path}", "--name=first"]
    status, _, err = ask(*given, PATH="/usr/bin:/bin")  # nobody has activated an environment
    assert status == 0, err
    assert [(tmp_path / "first" / f"rank-{rank}").read_text() for rank in (0, 1)] == ["11 live", "11 live"]


def test_an_archive_runs_as_it_was_with_the_variables_of_a_cluster(code: Path, tmp_path: Path) -> None:
    archive = tmp_path / f"code{SUFFIX}"
    archive.write_bytes(pack(code).data)
    (code / "mine" / "part.py").write_text("NAME = 'changed'\n")
    text = "python -c 'import mine.part; print(mine.part.NAME)'; ((PET_MASTER_PORT == MASTER_PORT)) &&"
    text += " echo $NNODES $NODE_RANK $PET_NPROC_PER_NODE $MASTER_ADDR"
    status, out, err = ask(f"--cmd={text}", "--workers=3", f"--code={archive}", f"--root={tmp_path}")
    assert (status, out) == (0, "live\n1 0 3 127.0.0.1\n"), err
    status, out, err = ask("--cmd=pwd; true && no-such-program", f"--root={tmp_path / 'runs'}", cwd=tmp_path)
    assert (status, out) == (127, f"{tmp_path}\n")
    assert "exited with status 127" in err
    assert "remedy: the shell did not find the program" in err


def test_bad_input_is_named_before_anything_starts(code: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (["--cmd=torchrunn saves.py"], "torchrunn: no such program on PATH"),
        (["--cmd=torchrun tools/reduse.py"], "did you mean tools/reduce.py?"),
        (["--cmd=true", "--code=no/folder"], "code folder no/folder: no such folder"),
        (["--cmd=true", "--name=../x"], "invalid name='../x'"),
        (["--cmd=true", "--group=a10g"], "--group needs a cluster"),
    ):
        assert_refused(2, said, "run", f"--code={code}", *arguments, f"--root={tmp_path / 'runs'}")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once_which_may_save(number: signal.Signals, code: Path, tmp_path: Path) -> None:
    with running("--cmd=python saves.py", f"--code={code}", f"--root={tmp_path}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as the terminal does
        else:
            process.send_signal(number)
        process.communicate(timeout=_SECONDS)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert (code / "saved").read_text() == number.name
