"""Every command of the documents can be run as it stands, or is marked with what it needs; all of them are well-formed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.commands.found import ROOT, Command, Mark, contents, documents, overlooked, read
from tests.docs.commands.needs import REASONS, needs, parse
from tests.docs.commands.proof import ELSEWHERE, SERVERS, STATUS, Step, in_words, steps
from tests.docs.commands.statics import problems

STEPS = [*in_words()]
MARKS = contents()[1]
TEXT = """# Title

<!-- needs: gpu -->

    make train   # a comment
    make train \\
      SEED=1

    loss 0.1

## Section

<!-- needs: account -->

1. Do this:

       pulumi up
   and that.

```sh
make jobs
```

```yaml
make: 1
```

## Another

    VARIABLE=1 make up
"""


def test_commands_are_found_with_the_marks_of_their_sections() -> None:
    found, marks = read(TEXT, "a.md")
    assert found == [
        Command("a.md:5", "make train", frozenset({"gpu"})),
        Command("a.md:6", "make train SEED=1", frozenset({"gpu"})),
        Command("a.md:17", "pulumi up", frozenset({"gpu", "account"})),
        Command("a.md:21", "make jobs", frozenset({"gpu", "account"})),
        Command("a.md:30", "VARIABLE=1 make up", frozenset({"gpu"})),
    ]
    assert [(mark.where, len(mark.commands)) for mark in marks] == [("a.md:3", 5), ("a.md:13", 2)]


@pytest.mark.parametrize(
    "text",
    ["    make train\n    terraform apply\n", "    bash -c true\n", "```sh\nenv\n```\n", "1. One\n\n    make train\n"],
)
def test_a_command_of_an_unknown_program_or_that_is_no_code_is_found_out(text: str) -> None:
    assert [*overlooked(text)]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_no_command_is_overlooked(document: Path) -> None:
    assert [*overlooked(document.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_a_command_that_needs_something_is_marked(document: Path) -> None:
    unmarked = {
        step.command.where: sorted(missing)
        for step in STEPS
        if ROOT / step.command.document == document and (missing := needs(step.words) - step.command.marked)
    }
    assert unmarked == {}


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.where)
def test_a_mark_names_what_a_command_of_its_section_needs(mark: Mark) -> None:
    needed = {reason for step in STEPS if step.command in mark.commands for reason in needs(step.words)}
    assert {*mark.reasons} <= {*REASONS}
    assert {*mark.reasons} <= needed


def test_a_mark_repeats_none_of_the_sections_above() -> None:
    for inner in MARKS:
        above = [mark for mark in MARKS if mark is not inner and {*inner.commands} < {*mark.commands}]
        assert {*inner.reasons}.isdisjoint(reason for mark in above for reason in mark.reasons), inner.where


def test_every_reason_is_used() -> None:
    assert {reason for mark in MARKS for reason in mark.reasons} == {*REASONS}


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("make train", set()),
        ("make train GPU=1", {"gpu"}),
        ("make train GPU=1 ENV=dev", {"cluster"}),
        ("make train DATA=/data/photos", {"files"}),
        ("make train CODE=../my-project", {"files"}),
        ("make resume", {"run"}),
        ("make resize WORKERS=4", {"run"}),
        ("make resize ENV=dev JOB=first WORKERS=4", {"cluster"}),
        ("make cost ENV=dev", set()),
        ("make cost ENV=dev JOB=first", {"cluster"}),
        ("make job ENV=dev OUTPUTS=outputs.json", set()),
        ("make ray-cluster HOSTS='a b' SSH_USER=me RUNS=/nfs/runs", set()),
        ("make ray-cluster ENV=dev PROFILE=ray AMI=ami-…", {"account", "values"}),
        ("make ray-cluster ENV=dev OUTPUTS=outputs.json", set()),
        ("make train RAY=file.yaml GPU=1", {"machines"}),
        ("make logs RAY=file.yaml JOB=first", {"machines"}),
        (".venv/bin/ray up file.yaml", {"machines"}),
        ("make logs NAME=first RANK=…", {"run", "values"}),
        ("kubectl -n TEAM get pods", {"cluster", "values"}),
        ("git checkout v0.2.0", {"release"}),
    ],
)
def test_what_a_command_needs_follows_from_it(text: str, reasons: set[str]) -> None:
    assert needs(parse(text)) == reasons


def test_a_command_needs_no_run_or_code_that_an_earlier_one_makes() -> None:
    earlier = (parse("make train NAME=first"), parse("make new NAME=my-project"))
    assert needs(parse("make resume NAME=first", earlier)) == set()
    assert needs(parse("make resume NAME=second", earlier)) == {"run"}
    assert needs(parse("make train CODE=../my-project", earlier)) == set()


@pytest.mark.parametrize("text", sorted({step.command.text for step in STEPS}))
def test_a_command_is_well_formed(text: str) -> None:
    assert [*problems(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "make tran",
        "make train WORKER=2",
        "make monitor NAME=a EPOCHS=2",
        "make train SET=loop.batch=2",
        "make train SET=loop.epochs=many",
        "make train CONFIG=resnet51",
        "make train ARGS=--cpu",
        "make cluster ENV=dev HOURS=long",
        "python -m infra.lifecycle leak",
        ".venv/bin/python -m training.check",
        ".venv/bin/python -m observability.benchmarks.fleet --nodes many",
        ".ci/runs",
        "aws ec3 describe-instances",
        "aws ec2 describe-instance",
        "aws ec2 describe-instances --zone a",
        "aws rds wait db-instance-ready",
        "make train SET='",
    ],
)
def test_a_command_that_is_not_is_found_out(text: str) -> None:
    assert [*problems(text)]


@pytest.mark.parametrize(("subject", "file"), ELSEWHERE.items())
def test_the_tests_of_a_command_exist_and_a_document_has_it(subject: str, file: str) -> None:
    assert (ROOT / file).is_file()
    assert subject in {step.subject for step in STEPS if step.is_run_elsewhere}


def test_servers_and_statuses_are_of_commands_that_are_run() -> None:
    ran: list[Step] = steps()
    assert {*SERVERS} <= {step.subject for step in ran}
    assert {*STATUS} <= {step.command.text for step in ran}
