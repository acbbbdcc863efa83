"""Which variables the commands of make take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makefile import ROOT, command, last_command, make


def test_environment_variables_are_ignored() -> None:
    assert command("train", environment={"NAME": "host", "SEED": "3", "ARGS": "--help"}) == command("train")


def test_an_unknown_variable_is_refused() -> None:
    refused = make("train", "EPOCH=3")
    assert refused.returncode == 2
    assert "unknown variable EPOCH; known: MODEL DATASET" in refused.stderr


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["resume", "WORKERS=4"], "make resume does not take WORKERS here; it takes ARGS CODE DETACH ENV"),
        (["stop", "JOB=first", "NAME=first"], "make stop does not take NAME here; it takes ARGS DETACH ENV JOB"),
        (["preview", "ENV=dev", "FROM=staging"], "make preview does not take FROM here; it takes ARGS ENV YES"),
        (["docs", "PORT=8001"], "make docs does not take PORT here; it takes ARGS SERVE"),
        (["wheel", "OUT=dist"], "make wheel does not take OUT here."),
        (["SEED=1"], "make help does not take SEED here."),
    ],
)
def test_a_variable_that_the_command_does_not_take_is_refused_before_the_command(
    typed: list[str], message: str
) -> None:
    refused = make("--dry-run", *typed)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "-m training" not in refused.stdout


def test_each_of_several_commands_takes_some_of_the_variables() -> None:
    planned = make("--dry-run", "env", "lint", "FOR=dev")
    assert planned.returncode == 0, planned.stderr


def test_a_make_that_calls_this_one_passes_on_variables_for_its_other_commands(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        f"nightly:\n\t$(MAKE) -C {ROOT} --dry-run lint && $(MAKE) -C {ROOT} --dry-run train\n"
    )
    planned = make("--no-print-directory", "-C", str(tmp_path), "nightly", "SEED=1")
    assert planned.returncode == 0, planned.stderr
    assert last_command(planned) == ["-m", "training", "train", "--seed", "1"]
