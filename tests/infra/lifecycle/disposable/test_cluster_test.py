"""`make cluster-test`: whatever happens to a test, its cluster is taken down; pulumi, AWS and the cluster are doubles here."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.commands import cluster_test as commands
from infra.lifecycle.disposable.cluster_test import ClusterTest, Step
from infra.lifecycle.disposable.stack import LONGEST, ThrowAway, new_name, time_to_live
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.settings import load_environment
from infra.spec.settings.loading import ENVIRONMENTS, STACK_FILES

HOW_TO_END = "  make down ENV=test-1 YES=1"
OPTIONS = ("--owner", "me@example.com", "--account", "111122223333")


class Life:
    """A cluster whose steps answer as told, and note that they ran."""

    def __init__(self, answers: Mapping[str, int | BaseException] | None = None, *, keeps_failed: bool = False) -> None:
        self.steps: list[str] = []
        self.said: list[str] = []
        self._answers = answers or {}
        minutes = count()
        self.test = ClusterTest(
            steps=(Step("up", lambda: self._run("up")), Step("conformance", lambda: self._run("conformance"))),
            down=lambda: self._run("down"),
            keeps_failed=keeps_failed,
            kept=(HOW_TO_END,),
            say=self.said.append,
            clock=lambda: 60.0 * next(minutes),
        )

    def _run(self, step: str) -> int:
        self.steps.append(step)
        answer = self._answers.get(step, 0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize("keeps_failed", [False, True])
def test_a_good_cluster_is_tested_and_taken_down(*, keeps_failed: bool) -> None:
    life = Life(keeps_failed=keeps_failed)
    assert life.test.run() == 0
    assert life.steps == ["up", "conformance", "down"]
    assert life.said[-1] == "up 1.0 min; conformance 1.0 min; down 1.0 min"


@pytest.mark.parametrize(
    ("answers", "steps", "status"),
    [
        ({"up": 255}, ["up", "down"], 255),
        ({"conformance": 1}, ["up", "conformance", "down"], 1),
        ({"down": 1}, ["up", "conformance", "down"], 1),
        ({"conformance": 4, "down": 255}, ["up", "conformance", "down"], 4),
    ],
)
def test_the_first_failure_counts_and_the_cluster_goes(answers: dict[str, int], steps: list[str], status: int) -> None:
    life = Life(answers)
    assert life.test.run() == status
    assert life.steps == steps
    assert (HOW_TO_END in life.said) == ("down" in answers)


def test_whatever_ends_a_step_takes_the_cluster_down() -> None:
    endings: dict[str, BaseException] = {
        "refused: images are missing": RefusedError("images are missing"),
        "failed: AWS does not answer": PlatformError("AWS does not answer"),
        "interrupted": KeyboardInterrupt(),
        "SystemExit: 1": SystemExit(1),
        "OSError: no space left on device": OSError("no space left on device"),
    }
    for says, error in endings.items():
        life = Life({"up": error})
        with pytest.raises(type(error)):
            life.test.run()
        assert life.steps == ["up", "down"], says
        assert f"the test failed: {says}" in life.said


def test_a_signal_ends_the_step_that_runs_and_takes_the_cluster_down() -> None:
    life = Life()

    def terminated() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    life.test.steps = (Step("up", terminated), Step("conformance", lambda: pytest.fail("the test went on")))
    with pytest.raises(KeyboardInterrupt):
        life.test.run()
    assert life.steps == ["down"]


def test_a_closed_terminal_interrupts_the_test_and_not_its_teardown() -> None:
    life = Life()
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def closed(status: int) -> Callable[[], int]:
        def step() -> int:
            os.kill(os.getpid(), signal.SIGHUP)
            life.steps.append("after the signal")
            return status

        return step

    life.test.steps, life.test.down = (Step("up", closed(0)),), closed(0)
    try:
        with pytest.raises(KeyboardInterrupt):
            life.test.run()
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert life.steps == ["after the signal"]
    assert life.said[-1].startswith("up 1.0 min; down 1.0 min")


def test_a_reader_that_leaves_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make cluster-test | head -1`, or a terminal that is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    life = Life()
    with os.fdopen(writer, "w", buffering=1) as out, os.fdopen(os.dup(writer), "w", buffering=1) as err:
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        life.test.say = print
        life.test.steps = (Step("up", lambda: print("a line of pulumi's", file=sys.stderr) or 0),)
        assert life.test.run() == 0
    assert life.steps == ["down"]


def test_an_interrupted_teardown_says_how_to_end_it() -> None:
    def signalled(number: signal.Signals) -> int:
        os.kill(os.getpid(), number)
        pytest.fail("the teardown went on")

    lives = [Life({"conformance": 1, "down": PlatformError("AWS does not answer")})]
    for number in (signal.SIGINT, signal.SIGTERM):  # a second one, after that which ended the test
        lives.append(Life({"up": KeyboardInterrupt()}))
        lives[-1].test.down = partial(signalled, number)
    for life in lives:
        with pytest.raises((PlatformError, KeyboardInterrupt)):
            life.test.run()
        assert {"it is not down, and billed until you take it down:", HOW_TO_END} <= {*life.said}


def test_a_failed_cluster_is_kept_on_request() -> None:
    for answer in (1, RefusedError("no nodes"), KeyboardInterrupt()):
        life = Life({"conformance": answer}, keeps_failed=True)
        if isinstance(answer, BaseException):
            with pytest.raises(type(answer)):
                life.test.run()
        else:
            assert life.test.run() == 1
        assert life.steps == ["up", "conformance"]
        assert "it is kept and billed until you take it down:" in life.said


def test_a_time_to_live_is_minutes_hours_or_days_and_not_too_long() -> None:
    lives = {"90m": timedelta(minutes=90), "4h": timedelta(hours=4), "2d": timedelta(days=2), "72h": timedelta(days=3)}
    assert {text: time_to_live(text) for text in lives} == lives
    for text in ("", "4", "0h", "-1h", "4 h", "1w", "73h", "4d", "9999999999h"):
        with pytest.raises(SettingsError, match=f"^TTL={text}: ") as caught:
            time_to_live(text)
        assert caught.value.remedy, text


def test_its_settings_have_expiry_owner_and_purpose_and_go_with_it(made: ThrowAway) -> None:
    made.write()
    environment = load_environment(made.name).environment
    assert (environment.owner, environment.purpose) == ("me@example.com", "cluster-test")
    assert environment.expires == made.expires
    with pytest.raises(SettingsError, match="exists"):
        made.write()
    variables = {"PULUMI_CONFIG_PASSPHRASE": "mine"}  # the user's is left alone
    made.make_passphrase(variables)
    assert variables == {"PULUMI_CONFIG_PASSPHRASE": "mine"}
    assert not made.passphrase_file.exists()
    assert "make down" in made.how_to_end()[0]
    variables.clear()
    made.make_passphrase(variables)
    file = Path(variables["PULUMI_CONFIG_PASSPHRASE_FILE"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text(encoding="utf-8")) >= 32
    assert made.how_to_end()[0] == f"  export PULUMI_CONFIG_PASSPHRASE_FILE={file}"
    made.forget()
    assert not file.exists()
    assert not made.settings_file.exists()


def test_values_and_names_that_are_no_settings_leave_no_file(made: ThrowAway) -> None:
    for field in ("owner", "account", "purpose"):
        with pytest.raises(SettingsError):
            ThrowAway(**{**made.__dict__, field: 'x" y'}).write()
        assert not made.settings_file.exists(), field
    for name in ("atest-1", "testing"):  # which git would not ignore
        with pytest.raises(SettingsError, match=f"environment.name = {name}: must begin with test-"):
            replace(made, name=name).write()
        assert not (ENVIRONMENTS / f"{name}.yaml").exists()
    with pytest.raises(SettingsError, match=r"dev\.yaml: exists"):
        replace(made, name="dev").write()


@pytest.fixture
def made() -> Iterator[ThrowAway]:
    one = ThrowAway(
        name=new_name(),
        owner="me@example.com",
        account="111122223333",
        purpose="cluster-test",
        expires=(datetime.now(UTC) + LONGEST).replace(microsecond=0),
        budget_usd=50,
    )
    try:
        yield one
    finally:
        one.forget()


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Puts a `pulumi` on PATH that notes what it is asked; returns its notes. The steps of the test note themselves there too."""
    notes = tmp_path / "notes"
    program = tmp_path / "pulumi"
    program.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo v3.999.0 && exit\necho "$*" >> {notes}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    # Set for this test, so that the command leaves nothing behind in this process.
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")

    def note(step: str, status: int = 0) -> Callable[..., int]:
        def run(options: object) -> int:
            with notes.open("a") as opened:
                opened.write(f"{step} {getattr(options, 'env', options)}\n")
            return status

        return run

    monkeypatch.setattr("infra.lifecycle.commands.stack.preflight", note("PREFLIGHT"))
    monkeypatch.setattr("infra.lifecycle.commands.stack.up", note("UP"))
    monkeypatch.setattr("infra.lifecycle.commands.down.down", note("DOWN"))
    monkeypatch.setattr(commands, "_conform", lambda environment, _folder: note("CONFORMANCE")(environment))
    return lambda: notes.read_text().splitlines() if notes.exists() else []


@pytest.fixture
def nothing_left(pulumi: Callable[[], list[str]]) -> Iterator[None]:
    """Of a command that is refused: neither a stack nor settings."""
    yield
    assert pulumi() == []
    assert [*ENVIRONMENTS.glob("test-4711*")] == []


def test_the_command_makes_a_stack_and_removes_it(pulumi: Callable[[], list[str]]) -> None:
    assert main(["cluster-test", *OPTIONS, "--name", "test-4711a", "--ttl", "1h"]) == 0
    ran = [line.removeprefix("--non-interactive ").split(" --")[0] for line in pulumi()]
    assert ran[0] == "PREFLIGHT test-4711a"
    assert "stack init test-4711a" in ran
    assert ran[-4:] == ["UP test-4711a", "CONFORMANCE test-4711a", "DOWN test-4711a", "stack rm"]
    assert not (ENVIRONMENTS / "test-4711a.yaml").exists()
    assert not (STACK_FILES / "Pulumi.test-4711a.yaml").exists()


PROD = load_environment("prod").aws.allowed_accounts[0]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--account", PROD], 3, [f"account {PROD} may hold prod, a production environment"]),
        (["--promote-from", "nix"], 2, ["unknown environment 'nix'"]),
        (["--ttl", "72h", "--max-usd", "1"], 3, ["US dollars for 72 h", "MAX_USD is 1"]),
    ],
)
def test_wrong_input_is_refused_first(
    options: list[str], status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster-test", *OPTIONS, "--name", "test-4711c", *options]) == status
    error = capsys.readouterr().err
    assert all(one in error for one in said), error


@pytest.mark.usefixtures("nothing_left")
def test_a_refused_preflight_and_a_signal_before_the_stack_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: object) -> int:
        raise RefusedError("preflight of test-4711b: 1 problem(s)")

    def terminated(_options: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the command went on")

    for preflight, status in ((refuse, 3), (terminated, 130)):
        monkeypatch.setattr("infra.lifecycle.commands.stack.preflight", preflight)
        assert main(["cluster-test", *OPTIONS, "--name", "test-4711b"]) == status


def test_a_stack_that_pulumi_refuses_leaves_nothing(
    pulumi: Callable[[], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pulumi").write_text(
        '#!/bin/sh\n[ "$1" = version ] && echo v3.999.0 && exit\necho "error: please log in" >&2; exit 255\n'
    )
    assert main(["cluster-test", *OPTIONS, "--name", "test-4711d"]) == 3
    assert "pulumi cannot make stack test-4711d: error: please log in" in capsys.readouterr().err
    assert pulumi() == ["PREFLIGHT test-4711d"]
    assert not (ENVIRONMENTS / "test-4711d.yaml").exists()
