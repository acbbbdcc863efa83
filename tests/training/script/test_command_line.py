"""Command lines are checked before anything starts."""

from __future__ import annotations

import os

import pytest

from infra.spec.errors import SettingsError
from training.script.command_line import check_files, check_program, check_syntax, title

FILES = ("train.py", "tools/prepare.py", "run.sh", "data.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cmd is empty"),
        ("  \n", "cmd is empty"),
        ("python train.py --name 'half", "unexpected EOF while looking for matching"),
        ("python train.py &&", "syntax error"),
        ("(python train.py", "syntax error"),
    ],
)
def test_a_command_line_that_the_shell_cannot_parse_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        check_syntax(text)


@pytest.mark.parametrize(
    "text", ["torchrun train.py", "cd a && FOO=1 python b.py | tee c", "echo it # isn't", "echo '$x'"]
)
def test_what_the_shell_can_parse_is_accepted(text: str) -> None:
    check_syntax(text)


@pytest.mark.parametrize(
    ("text", "missing", "said"),
    [
        ("torchrun trian.py", "trian.py", "did you mean train.py?"),
        (
            "torchrun --nnodes 2 --nproc-per-node=8 model.py --epochs 3",
            "model.py",
            "files there: run.sh, tools/prepare.py, train.py",
        ),
        ("python tools/prepair.py && torchrun train.py", "tools/prepair.py", "did you mean tools/prepare.py?"),
        ("./start.sh now", "./start.sh", "files there"),
        ("SEED=3 bash runs.sh", "runs.sh", "did you mean run.sh?"),
    ],
)
def test_a_script_that_the_folder_does_not_have_is_named_with_those_that_it_has(
    text: str, missing: str, said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        check_files(text, FILES, folder="code folder ../mine")
    assert refused.value.args[0] == f"{missing}: no such file in code folder ../mine"
    assert said in refused.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py",
        "torchrun ./train.py --config other.py",
        "python -u tools/prepare.py",
        "./run.sh",
        "python -m mine.train x.py",
        "python -c 'import x' y.py",
        "torchrun --nnodes 2 -m mine.train z.py",
        "python /mnt/runs/shared/x.py",
        "python $SCRIPT.py",
        "python ../x.py",
        "nvidia-smi",
        "cd tools && python made_by_cd.py",
        "echo it # isn't",
    ],
)
def test_what_the_folder_has_or_cannot_decide_is_accepted(text: str) -> None:
    check_files(text, FILES, folder="code folder ../mine")


def test_a_file_without_its_folder_is_refused_because_the_shell_looks_on_the_path() -> None:
    with pytest.raises(SettingsError) as refused:
        check_files("train.py --epochs 3", FILES, folder="code folder ../mine")
    assert refused.value.remedy == "write ./train.py, or python train.py"


def test_without_files_the_remedy_is_a_code_folder() -> None:
    with pytest.raises(SettingsError) as refused:
        check_files("torchrun train.py", (), folder="the pods, which have no code folder")
    assert refused.value.remedy == "name the folder that has it: CODE=…"


@pytest.mark.parametrize("text", ["torchrunn train.py", "X=1 no-such-program", "no.such | cat"])
def test_a_program_that_this_machine_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="no such program on PATH"):
        check_program(text, environment=os.environ)


@pytest.mark.parametrize(
    "text", ["cat x", "cd x", "for x in 1 2; do echo $x; done", "./mine", "X=1", "$PROGRAM", "(cd x)"]
)
def test_programs_keywords_and_what_only_the_shell_knows_are_accepted(text: str) -> None:
    check_program(text, environment=os.environ)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torchrun --nnodes=2 tools/train_big.py --lr 1", "train_big"),
        ("nvidia-smi -L", "nvidia-smi"),
        ("python -m mine.train", "python"),
        ("A=1", ""),
    ],
)
def test_a_job_is_named_after_its_script(text: str, expected: str) -> None:
    assert title(text) == expected
