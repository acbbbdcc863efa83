"""Variables of make become options of the command line, quoted; a command refuses those that it does not take."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.makefile import ROOT, command, last_command, make

USER = "torchrun train.py --out $RTP_OUTPUT_FOLDER/$(date +%s) 'it''s' # x"
PROFILED = "training train --set profile.start_step=10"
PLANNED = {
    "train": "training train",
    "train CONFIG='a b.yaml' DATA='c d' GPU=1": "training train --config a --config b.yaml --data-path 'c d' --use-gpu",
    """train NAME="it's" SET='a.b=3 c=[1,2]' GPU=0""": """training train --no-use-gpu --name "it's" --set-all 'a.b=3 c=[1,2]'""",
    """train ARGS="--print-config --set 'run.name=a b'" """: "training train --print-config --set 'run.name=a b'",
    "train ENV=dev SPOT=1 DETACH=1 SCHEDULE='0 2 * * *'": "training train --env dev --spot --detach --schedule '0 2 * * *'",
    "job EPOCHS=3 ENV=dev OUT='a b.yaml'": "training job --epochs 3 --env dev --out 'a b.yaml'",
    "profile MODEL=mlp": f"{PROFILED} --model mlp",
    "profile NAME=slow": "training profile slow",
    "profile NAME=slow ENV=dev": f"{PROFILED} --name slow --env dev",
    "profile JOB=mine ENV=dev": "training profile mine --env dev",
    "cost": "training cost",
    "cost ENV=dev": "infra.lifecycle cost --env dev",
    "cost ENV=dev JOB=first": "training cost first --env dev",
    "open WHAT='mlflow ray' ENV=dev": "training open mlflow ray --env dev",
    "graph ENV=prod FILE='a b.svg'": "infra.lifecycle graph --env prod --picture 'a b.svg'",
    "graph ENV=prod FILE=graph.json": "infra.lifecycle graph --env prod --json graph.json",
    "up ENV=dev YES=1 FROM=staging JOBS=wait": "infra.lifecycle up --env dev --yes --promote-from staging --jobs wait",
    "reap REGION='us-east-1 eu-west-1' DRY_RUN=1": "infra.lifecycle reap --region us-east-1 --region eu-west-1 --dry-run",
    "test ALL=2/4 ARGS=-x": "tests --all 2/4 -x",
    "docs SERVE=1 PORT=8001": "mkdocs serve --dev-addr localhost:8001",
}
"""Target and variables as they are typed, and what Python then runs as a module."""


def test_variables_become_options() -> None:
    for typed, words in PLANNED.items():
        assert command(*shlex.split(typed)) == ["-m", *shlex.split(words)], typed
    options = ["--cmd", USER, "--code", "../my project"]
    assert command("run", f"CMD={USER}", "CODE=../my project") == ["-m", "training", "run", *options]
    assert command("job", f"CMD={USER}", "CODE=../my project") == ["-m", "training", "run", *options, "--out", "-"]


def test_variables_of_the_environment_have_no_effect_and_none_reaches_the_command() -> None:
    assert command("train", environment={"NAME": "host", "SEED": "3", "ARGS": "--help"}) == command("train")
    shown = make("--eval", "show:; @env", "show", "NAME=mine", "SEED=3", "TORCH_VERSION=2.15.0")
    names = {line.partition("=")[0] for line in shown.stdout.splitlines()}
    assert names & {"NAME", "SEED", "PYTHONDONTWRITEBYTECODE", "TORCH_VERSION"} == {"TORCH_VERSION"}


def test_a_variable_that_is_unknown_or_not_taken_is_refused_before_the_command() -> None:
    for typed, message in (
        (("train", "EPOCH=3"), "unknown variable EPOCH; known: MODEL DATASET"),
        (("resume", "WORKERS=4"), "make resume does not take WORKERS here; it takes ARGS CODE DETACH ENV"),
        (("preview", "ENV=dev", "FROM=staging"), "make preview does not take FROM here; it takes ARGS ENV YES"),
        (("SEED=1",), "make help does not take SEED here."),
    ):
        refused = make("--dry-run", *typed)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
        assert "-m " not in refused.stdout
    several = make("--dry-run", "env", "lint", "FOR=dev")
    assert several.returncode == 0, several.stderr


def test_a_make_that_calls_this_one_passes_on_variables_for_its_other_commands(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        f"nightly:\n\t$(MAKE) -C {ROOT} --dry-run lint && $(MAKE) -C {ROOT} --dry-run train\n"
    )
    planned = make("--no-print-directory", "-C", str(tmp_path), "nightly", "SEED=1")
    assert planned.returncode == 0, planned.stderr
    assert last_command(planned) == ["-m", "training", "train", "--seed", "1"]


def test_the_tests_of_a_code_folder_run_there_and_import_the_platform_from_here() -> None:
    planned = make("--dry-run", "test", "CODE=../it's mine", "ARGS=-k word").stdout.splitlines()[-1]
    words = ["cd", "../it's mine", "&&", f"PYTHONPATH={ROOT}", f"{ROOT}/.venv/bin/python", "-m", "pytest", "-k", "word"]
    assert shlex.split(planned) == words
