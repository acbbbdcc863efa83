"""docs/DEPLOYMENT.md: every command is in a test, or listed as run by none; those that need no account run here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from infra.spec.release import load_release
from tests.deployment_guide import ELSEWHERE, IN_THE_ENGINE, WITHOUT_ACCOUNT, account_only, commands, covers
from tests.engines.pulumi_checkout import Checkout
from tests.makefile import ROOT
from tests.platform_charts.charts.archives import charts

TESTED = (*(step.command for step in (*WITHOUT_ACCOUNT, *IN_THE_ENGINE)), *ELSEWHERE)


def test_every_command_is_in_a_test_or_listed_as_in_none() -> None:
    untested = {one for one in commands() if not any(covers(tested, one) for tested in TESTED)}
    assert untested == account_only()


def test_the_tests_run_no_command_that_the_guide_lacks() -> None:
    assert {*TESTED} - commands() == set()


@pytest.mark.parametrize(("command", "file"), ELSEWHERE.items())
def test_the_tests_of_a_command_name_it(command: str, file: str) -> None:
    subject = command.split()[1]
    assert re.search(subject.replace("-", "[-_ ]"), (ROOT / file).read_text(encoding="utf-8"))


def test_the_commands_without_an_account_do_what_the_guide_says(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout", charts(load_release()))
    path = f"{checkout.root / '.venv/bin'}:{os.environ['PATH']}"
    for step in WITHOUT_ACCOUNT:
        ran = subprocess.run(
            step.command.split(),
            cwd=checkout.root,
            env={**os.environ, "PATH": path, "MPLCONFIGDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == step.status, ran.stdout
        assert step.says in ran.stdout
    assert (checkout.root / "prod.svg").read_text(encoding="utf-8").startswith("<?xml")
