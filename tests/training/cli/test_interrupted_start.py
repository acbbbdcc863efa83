"""Ctrl-C while a command is still importing ends it like any other Ctrl-C: status 130, and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.training.cli.command import ROOT

_PROGRAM = """
import os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "infra.spec.command_line":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupt())
sys.argv = [sys.argv[1], "--help"]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("program", ["training", "infra.lifecycle"])
def test_an_interrupt_during_the_imports_prints_nothing(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
