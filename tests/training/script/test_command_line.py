"""Command lines are checked before anything starts."""

from __future__ import annotations

import os

import pytest

from infra.spec.errors import SettingsError
from training.script.command_line import check_files, check_program, check_syntax, title

FILES = ("train.py", "tools/prepare.py", "run.sh", "data.csv")


def test_a_command_line_that_the_shell_cannot_parse_is_refused() -> None:
    for text, said in (
        ("", "cmd is empty"),
        ("python train.py --name 'half", "unexpected EOF while looking for matching"),
        ("python train.py &&", "syntax error"),
        ("(python train.py", "syntax error"),
    ):
        with pytest.raises(SettingsError, match=said):
            check_syntax(text)
    for text in ("torchrun train.py", "cd a && FOO=1 python b.py | tee c", "echo it # isn't", "echo '$x'"):
        check_syntax(text)


def test_a_script_that_the_folder_does_not_have_is_named_with_those_that_it_has() -> None:
    listed = "files there: run.sh, tools/prepare.py, train.py"
    for text, missing, said in (
        ("torchrun trian.py", "trian.py", "did you mean train.py?"),
        ("torchrun --nnodes 2 --nproc-per-node=8 model.py --epochs 3", "model.py", listed),
        ("python tools/prepair.py && torchrun train.py", "tools/prepair.py", "did you mean tools/prepare.py?"),
        ("./start.sh now", "./start.sh", listed),
        ("SEED=3 bash runs.sh", "runs.sh", "did you mean run.sh?"),
    ):
        with pytest.raises(SettingsError) as refused:
            check_files(text, FILES, folder="code folder ../mine")
        assert refused.value.args[0] == f"{missing}: no such file in code folder ../mine"
        assert said in refused.value.remedy
    for text, files, remedy in (
        # The shell looks for it on the path.
        ("train.py --epochs 3", FILES, "write ./train.py, or python train.py"),
        ("torchrun train.py", (), "name the folder that has it: CODE=…"),
    ):
        with pytest.raises(SettingsError) as refused:
            check_files(text, files, folder="it")
        assert refused.value.remedy == remedy


def test_what_the_folder_has_or_cannot_decide_is_accepted() -> None:
    for text in (
        "torchrun train.py",
        "torchrun ./train.py --config other.py",
        "python -u tools/prepare.py",
        "./run.sh",
        "python -m mine.train x.py",
        "python -c 'import x' y.py",
        "python /mnt/runs/shared/x.py",
        "python $SCRIPT.py",
        "python ../x.py",
        "nvidia-smi",
        "cd tools && python made_by_cd.py",
        "echo it # isn't",
    ):
        check_files(text, FILES, folder="code folder ../mine")


def test_a_program_that_this_machine_does_not_have_is_refused_unless_only_the_shell_knows() -> None:
    for text in ("torchrunn train.py", "X=1 no-such-program", "no.such | cat"):
        with pytest.raises(SettingsError, match="no such program on PATH"):
            check_program(text, environment=os.environ)
    for text in ("cat x", "cd x", "for x in 1 2; do echo $x; done", "./mine", "X=1", "$PROGRAM", "(cd x)"):
        check_program(text, environment=os.environ)


def test_a_job_is_named_after_its_script() -> None:
    assert title("torchrun --nnodes=2 tools/train_big.py --lr 1") == "train_big"
    assert title("nvidia-smi -L") == "nvidia-smi"
    assert title("python -m mine.train") == "python"
    assert title("A=1") == ""
