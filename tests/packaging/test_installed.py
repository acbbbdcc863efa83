"""The program `rtp` of an installed wheel, in environments that have what its extras require and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.lifecycle.cli import main as lifecycle
from infra.spec.release import load_release
from infra.spec.yaml_text import parse
from tests.distribution import RAY
from tests.packaging.wheel import Installation

pytestmark = pytest.mark.extended

COMPLETE = """
eval "$(python -c 'from argcomplete.scripts.register_python_argcomplete import main; main()' rtp)"
complete -p rtp
read -r -a COMP_WORDS <<< "$TYPED"
[[ $TYPED == *" " ]] && COMP_WORDS+=("")
COMP_LINE=$TYPED COMP_POINT=${#TYPED} COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
function=$(complete -p rtp | grep -o '[-]F [^ ]*' | cut -c4-)
"$function" rtp "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does for a Tab after `$TYPED`."""


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """`ray-train-platform`, without extras."""
    return Installation.make(tmp_path_factory.mktemp("bare") / "environment", wheel, set())


def test_rtp_is_the_command_line_of_the_trainer_and_of_searches(bare: Installation, tmp_path: Path) -> None:
    shown, same = (bare.run(*words, "--help", cwd=tmp_path) for words in (["rtp"], ["python", "-m", "training"]))
    assert (shown.returncode, same.returncode) == (0, 0), shown.stderr + same.stderr
    assert "  train  " in shown.stdout
    commands = [out.partition("groups of")[0].splitlines()[2:] for out in (shown.stdout, same.stdout)]
    assert commands[0] == commands[1][: len(commands[0])]
    shown = bare.run("rtp", "tune", "status", "--help", cwd=tmp_path)
    same = bare.run("python", "-m", "tune", "status", "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.replace("rtp tune", "python -m tune") == same.stdout


def test_the_version_tells_what_a_run_would_use(bare: Installation, tmp_path: Path) -> None:
    shown = bare.run("rtp", "--version", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == f"ray-train-platform {load_release().platform}"
    assert lines[1].startswith("Python 3.")
    assert lines[2:] == ["torch is not installed"]


def test_wrong_input_exits_with_2(bare: Installation, tmp_path: Path) -> None:
    for words, message in (
        (["train", "--model", "mpl"], "model.name=mpl: unknown model"),
        (["tune", "serch"], "invalid choice: 'serch'"),
    ):
        refused = bare.run("rtp", *words, cwd=tmp_path)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_training_without_the_extra_is_refused_before_anything_is_written(bare: Installation, tmp_path: Path) -> None:
    refused = bare.run("rtp", "train", cwd=tmp_path)
    assert refused.returncode == 3
    assert "is not installed\n  remedy: pip install 'ray-train-platform[train]'" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_bash_completes(bare: Installation, tmp_path: Path) -> None:
    for typed, expected in (
        ("rtp resu", {"resume"}),
        ("rtp tune st", {"status"}),
        ("rtp train --priority ", {"low", "normal", "high"}),
    ):
        done = bare.run("bash", "--norc", "-c", COMPLETE, cwd=tmp_path, TYPED=typed)
        registered, *offered = done.stdout.splitlines()
        assert registered.endswith(" rtp"), done.stderr
        assert {word.strip() for word in offered} == expected, typed


def test_the_extra_cluster_writes_the_job_of_a_code_folder(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lifecycle(["outputs", "--env", "dev", "--recorded", "--file", str(tmp_path / "outputs.json")]) == 0
    capsys.readouterr()
    client = Installation.make(tmp_path / "environment", wheel, {"cluster"})
    assert client.run("rtp", "new", "mine", cwd=tmp_path).returncode == 0
    (tmp_path / "mine" / "requirements.txt").write_text("numpy>=2\n")
    asked = ("job", "--env", "dev", "--team", "research", "--outputs", "outputs.json", "--code", "mine")
    written = client.run("rtp", *asked, cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    *_, job = (parse(text, source="job").value for text in written.stdout.split("\n---\n")[1:])
    assert (job["kind"], job["metadata"]["namespace"]) == ("RayJob", "research")
    (tmp_path / "mine" / "requirements.txt").write_text("timm>=1\n")
    refused = client.run("rtp", *asked, cwd=tmp_path)
    assert (refused.returncode, "timm>=1" in refused.stderr) == (3, True)


@pytest.mark.xdist_group(RAY)
def test_the_extra_train_trains_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """With Ray Train and two workers, as `make train` does in a checkout."""
    trainer = Installation.make(tmp_path / "environment", wheel, {"train"})
    folder = tmp_path / "empty"
    folder.mkdir()
    shown = trainer.run("rtp", "--version", cwd=folder).stdout.splitlines()
    assert shown[2].startswith(f"torch {load_release().stack.torch}")
    assert " CPUs" in shown[3] or " x " in shown[3]
    trained = trainer.run("rtp", "train", "--name", "first", cwd=folder)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    run = folder / ".local" / "runs" / "first"
    assert "test accuracy 9" in trained.stdout
    assert (run / "report.html").is_file()
    [manifest, *_] = (run / "checkpoints").glob("*/manifest.json")
    assert json.loads(manifest.read_text(encoding="utf-8"))["identity"]["platform_version"] == load_release().platform
    assert trainer.run("rtp", "verify", "first", cwd=folder).returncode == 0
    small = ["search.trials=1", "search.scheduler={name: none}", "loop.epochs=1", "tracking.enabled=false"]
    searched = trainer.run("rtp", "tune", "search", *(part for one in small for part in ("--set", one)), cwd=folder)
    assert searched.returncode == 0, searched.stdout + searched.stderr
    assert {path.name for path in folder.iterdir()} == {".local"}
