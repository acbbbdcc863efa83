"""docs/DEPLOYMENT.md: the commands that the tests run are the guide's, and those that need no account run here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.spec.release import load_release
from tests.deployment_guide import IN_THE_ENGINE, WITHOUT_ACCOUNT
from tests.docs.commands.found import commands, mentioned
from tests.engines.pulumi_checkout import Checkout
from tests.makefile import ROOT
from tests.platform_charts.charts.archives import charts


def test_the_tests_run_no_command_that_the_guide_lacks() -> None:
    guide = ROOT / "docs" / "DEPLOYMENT.md"
    assert {step.command for step in (*WITHOUT_ACCOUNT, *IN_THE_ENGINE)} <= {*commands(guide), *mentioned(guide)}


@pytest.mark.extended
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
