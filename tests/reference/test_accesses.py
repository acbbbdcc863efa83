"""What counts as reading or setting an environment variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.accesses import Sources, in_dockerfile, in_makefile, in_shell


@pytest.mark.parametrize(
    "text",
    [
        'os.environ.get("NAME")',
        'os.environ["NAME"]',
        'os.environ.setdefault("NAME", "1")',
        'os.environ.update({"NAME": "1"})',
        'found = "NAME" in os.environ',
        'HERE = "NAME"\nos.environ[HERE]',
        "from names import THERE\nos.environ[THERE]",
        "import names\nos.environ.get(names.THERE)",
        'ALL = ("NAME", "other")\nkept = [environment[name] for name in ALL]',
        'def text(environment, name): ...\ntext(environment, "NAME")',
        'run(env={**os.environ, "NAME": "1"})',
        'Process(environment={"NAME": "1"} if given else None)',
        '_ENVIRONMENT = {"NAME": "1"}',
        'container = {"env": [{"name": "NAME", "valueFrom": {}}]}',
        'price = {PRICE_VARIABLE: "1"}\nPRICE_VARIABLE = "NAME"',
        "PROGRAM = 'import os; print(os.environ[\"NAME\"])'",
    ],
)
def test_a_use_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text('THERE = "NAME"\n')
    (tmp_path / "program.py").write_text(text)
    assert Sources(tmp_path).accesses("program.py") == {"NAME"}


@pytest.mark.parametrize("text", ['state.get("NAME")', 'environment["lower"]', '"""Reads NAME of os.environ."""'])
def test_what_is_no_use_is_not_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text)
    assert Sources(tmp_path).accesses("program.py") == set()


def test_a_script_reads_what_it_does_not_set_and_gives_what_is_before_a_command() -> None:
    text = 'A=1\necho "$A ${B:-1}" $SECONDS\nexport C=2\n  D=3 E=4 make test F=5\n# $G\n'
    assert in_shell(text) == {"B", "C", "D", "E"}


def test_an_image_sets_what_its_env_instructions_do() -> None:
    assert in_dockerfile("ARG A=1\nENV B=1 \\\n    C=${A}\nRUN D=1 make\n") == {"B", "C"}


def test_make_passes_on_what_it_does_not_unexport() -> None:
    text = "exported := A B\nunexport $(filter-out $(exported),$(variables))\nunexport C\nx:\n\tcd y && D=1 make\n"
    assert in_makefile(text) == {"A", "B", "C", "D"}
