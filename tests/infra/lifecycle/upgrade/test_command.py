"""`make upgrade` and wrong input; pulumi is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.stack import pulumi_cli
from tests.infra.lifecycle.conftest import Stack


def test_wrong_input_is_refused_before_anything_is_asked(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    stack()
    for options, status, said in (
        ("--only gpu-node", 2, "--only gpu-node: unknown step (did you mean gpu-nodes?)"),
        ("--rollback", 2, "name it with ARGS='--only STEP'"),
        ("--rollback --only control-plane", 3, "step control-plane has no way back"),
        ("--rollback --only foundation", 3, "step foundation has no way back"),
        ("--to 9.9.9", 3, "check out the release, e.g. `git checkout v9.9.9`"),
        ("", 3, "dev has no cluster to upgrade"),
    ):
        assert main(["upgrade", "--env", "dev", *options.split()]) == status, options
        assert said in capsys.readouterr().err


def test_a_step_leaves_resources_out_and_asks_no_policy_about_the_rest(stack: Stack, tmp_path: Path) -> None:
    stack()
    (tmp_path / "pulumi").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    assert pulumi_cli.run("up", environment="dev", is_confirmed=True, excluded=("urn:a", "urn:b")) == 0
    said = (tmp_path / "arguments").read_text().strip()
    assert said.endswith("--stack dev --exclude urn:a --exclude urn:b --yes")
