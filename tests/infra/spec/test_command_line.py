"""Commands are typed functions: their options are parsed, listed and completed from their dataclasses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from infra.spec.command_line import CommandLine, NoOptions, argument, option
from infra.spec.errors import PlatformError, RefusedError, SettingsError

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = CommandLine("python -m sample", "A sample.", variables={"SAMPLE_HOME": "where it lives"})
CALLS: list[object] = []
ERRORS: dict[str | None, BaseException] = {
    "failed": PlatformError("it failed"),
    "wrong": SettingsError("it is wrong", remedy="write it right"),
    "refused": RefusedError("not here"),
    "interrupted": KeyboardInterrupt(),
}


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Options of several commands."""

    TITLE: ClassVar = "shared options"

    folder: Path = option("a folder", default_factory=lambda: Path("here"))


@dataclass(frozen=True, kw_only=True)
class AllKinds(Shared):
    """An option of every kind."""

    env: str = option("required", ...)
    name: str | None = argument("a name")
    many: tuple[str, ...] = option("several")
    is_on: bool = option("a switch", default=False)
    is_known: bool | None = option("a switch with a negation")
    count: int = option("100 % of them", 3)
    size: Literal["small", "large"] | None = option("a size")
    from_: str | None = option("a name that is a keyword of Python")


@dataclass(frozen=True, kw_only=True)
class Which:
    """Which error."""

    error: str | None = argument("name of the error")


@COMMANDS.command("first")
def every_kind(options: AllKinds) -> int:
    """Take every kind of option."""
    CALLS.append(options)
    return 0


@COMMANDS.command("second")
def fail(options: Which) -> int:
    """Fail."""
    raise ERRORS[options.error]


@COMMANDS.command("second")
def succeed(_options: NoOptions) -> int:
    """Succeed."""
    return 0


def test_options_arrive_typed() -> None:
    words = ["every-kind", "x", "--env", "dev", "--many", "a", "--many", "b", "--is-on", "--no-is-known"]
    assert COMMANDS.main([*words, "--count", "4", "--size", "small", "--folder", "f", "--from", "y"]) == 0
    assert CALLS.pop() == AllKinds(
        env="dev",
        name="x",
        many=("a", "b"),
        is_on=True,
        is_known=False,
        count=4,
        size="small",
        folder=Path("f"),
        from_="y",
    )


def test_omitted_options_have_their_defaults() -> None:
    assert COMMANDS.main(["every-kind", "--env", "dev"]) == 0
    expected = {"folder": Path("here"), "env": "dev", "name": None, "many": (), "is_on": False}
    assert vars(CALLS.pop()) == {**expected, "is_known": None, "count": 3, "size": None, "from_": None}


def test_an_invalid_command_line_exits_with_the_status_of_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    for words, part in (
        (["every-kind"], "the following arguments are required: --env"),
        (["every-kind", "--env", "dev", "--size", "huge"], "argument --size: invalid choice: 'huge'"),
        (["every-kind", "--env", "dev", "--count", "many"], "argument --count: invalid int value: 'many'"),
        (["every"], "invalid choice: 'every'"),
        ([], "the following arguments are required: COMMAND"),
    ):
        with pytest.raises(SystemExit) as caught:
            COMMANDS.main(words)
        assert caught.value.code == 2, words
        assert part in capsys.readouterr().err, words


def test_an_error_exits_with_its_message_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    for error, status, message in (
        ("failed", 1, "error: it failed\n"),
        ("wrong", 2, "error: it is wrong\n  remedy: write it right\n"),
        ("refused", 3, "error: not here\n"),
        ("interrupted", 130, ""),
    ):
        assert COMMANDS.main(["fail", error]) == status, error
        assert capsys.readouterr().err == message, error


def test_help_lists_commands_under_headings_and_the_environment_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        COMMANDS.main(["--help"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    first, second = lines.index(["first:"]), lines.index(["second:"])
    assert lines[first + 1 : second - 1] == [["every-kind", "Take", "every", "kind", "of", "option."]]
    assert [words[0] for words in lines[second + 1 : second + 3]] == ["fail", "succeed"]
    assert ["SAMPLE_HOME", "where", "it", "lives"] in lines


def test_the_help_of_a_command_groups_shared_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        COMMANDS.main(["every-kind", "--help"])
    own, _, shared = capsys.readouterr().out.partition("shared options:")
    assert "100 % of them" in own
    assert shared.split() == ["--folder", "FOLDER", "a", "folder"]


def test_the_shell_completes(tmp_path: Path) -> None:
    for program, typed, expected in (
        ("training", "train --priority ", {"low", "normal", "high"}),
        ("infra.lifecycle", "release", {"release-check", "release-lock"}),
    ):
        line, answers = f"python -m {program} {typed}", tmp_path / program
        asked = {"_ARGCOMPLETE": "3", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
        environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answers)}
        subprocess.run([sys.executable, "-m", program], cwd=ROOT, env=environment, check=True)
        assert expected <= {answer.strip() for answer in answers.read_text().split("\n")}, typed


PRINTER = """
import sys
from infra.spec.command_line import CommandLine, NoOptions
from infra.spec.errors import RefusedError
COMMANDS = CommandLine("p", "A program.", variables={})
@COMMANDS.command("only")
def curve(_options: NoOptions) -> int:
    "Print what a terminal of another encoding cannot."
    print("\u2800\u28ff sending \u2026 \u2713 1 \u2264 2 \u540d")
    return 0
@COMMANDS.command("only")
def table(_options: NoOptions) -> int:
    "Print more than a pipe holds."
    for row in range(100_000):
        print("row", row)
    return 0
@COMMANDS.command("only")
def refuse(_options: NoOptions) -> int:
    "Refuse."
    raise RefusedError("not here")
sys.exit(COMMANDS.main())
"""


def printing(command: str, **streams: int | None) -> subprocess.Popen[str]:
    """A program whose standard output is ASCII."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    return subprocess.Popen([sys.executable, "-c", PRINTER, command], text=True, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


def test_an_ascii_output_gets_plain_characters() -> None:
    with printing("curve", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        out, err = program.communicate()
    assert (program.returncode, out, err) == (0, " * sending ... + 1 <= 2 ?\n", "")


def test_a_reader_that_leaves_ends_a_command_without_a_message() -> None:
    with printing("table", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "row 0\n"
        program.stdout.close()
        assert program.stderr.read() == ""
    assert program.returncode == 0


def test_an_error_that_nobody_reads_keeps_its_exit_status() -> None:
    read, write = os.pipe()
    os.close(read)
    with printing("refuse", stdout=write, stderr=write) as program:
        os.close(write)
    assert program.returncode == 3
