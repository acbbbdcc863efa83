"""Wrong input ends a command with status 2 before anything else is asked for, and never with a traceback."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.commands.case import answer
from infra.spec.settings.loading import ENVIRONMENTS
from tests.infra.aws.graphs import graph

ACCOUNT = "111122223333"


@pytest.fixture(autouse=True)
def without_programs_and_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)


def test_an_unknown_or_no_environment_is_named_before_a_missing_program_or_image(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (
        "preview --env prd",
        "up --env prd",
        "up --env dev --promote-from prd",
        "destroy --env prd",
        "graph --env prd --picture x.svg",
        "image --push --env prd",
        "image --env prd",
        "promote --from prd --to dev",
        "promote --from dev --to prd",
    ):
        assert main(words.split()) == 2, words
        assert "unknown environment 'prd' (did you mean prod?)" in capsys.readouterr().err
    assert main(["image", "--push"]) == 2
    assert "--push needs the environment" in capsys.readouterr().err


def test_an_unknown_canary_group_is_refused_before_aws_or_pulumi_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "--env", "dev", "--canary", "h100"]) == 2
    assert "CANARY=h100: unknown GPU group\n  remedy: known groups: t4, a10g" in capsys.readouterr().err


def test_an_error_after_a_question_that_nobody_answers_has_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert answer("type dev: ") == ""
    assert capsys.readouterr().out == "type dev: \n"


def test_a_file_that_cannot_be_read_or_written_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("commands.graph", "stack.outputs_file"):
        monkeypatch.setattr(f"infra.lifecycle.{module}.record", lambda _: graph("dev"))
    for words, said in (
        ("graph --env dev --json {}", "{}: cannot be written: Is a directory"),
        ("graph --env dev --json {}/none/x.json", "cannot be written: No such file or directory"),
        ("graph --env dev --picture {}/none/x.svg", "cannot be written: No such file or directory"),
        ("graph --env dev --picture {}/x.doc", "x.doc: the format must be .svg, .png or .pdf"),
        ("outputs --env dev --recorded --file {}/none/x.json", "cannot be written"),
        ("deployer-policy --env dev --file {}/none/x.json", "cannot be written"),
        ("outputs --env dev --file {}", "{}: is a directory"),
        ("outputs --env dev --file {}/none", "pulumi stack output --json -s ENV > {}/none"),
        ("sandbox --env dev --crds {}/none", "--crds {}/none: no such folder"),
    ):
        assert main(words.format(tmp_path).split()) == 2, words
        captured = capsys.readouterr()
        assert said.format(tmp_path) in captured.err
        assert "┃" not in captured.out, "a table hides the message"


def test_prices_without_credentials_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prices", "--dry-run"]) == 3
    said = capsys.readouterr().err
    assert "AWS Price List: Unable to locate credentials\n  remedy: sign in" in said


def test_a_number_out_of_its_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ["test-environment", "--name", "test-x", "--owner", "a@b.c", "--account", ACCOUNT, "--hours"]
    for words, said in (
        *(([*cluster, hours], "at least 1 and at most 720") for hours in ("-3", "0", "nan", "1e30")),
        (["tunnel", "--env", "dev", "--port", "65536"], "at least"),
        (["staleness", "--days", "-1"], "at least"),
        *((["hold", "--env", "dev", "--hours", hours], "at least 0") for hours in ("-1", "nan", "inf")),
        (["up", "--env", "dev", "--hours", "nan"], "at least"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2, words
        assert f"argument {words[-2]}: must be {said}" in capsys.readouterr().err
    assert not (ENVIRONMENTS / "test-x.yaml").exists()
