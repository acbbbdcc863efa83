"""What a person sees of a preview, and what the commands read of it, come from one run of the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.commands import stack as commands
from infra.lifecycle.options import UpdateOptions
from infra.lifecycle.rollout.plan import plan_of_update
from infra.lifecycle.stack import pulumi_cli
from infra.spec.errors import RefusedError

STACK = "urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"
GROUP = "urn:pulumi:dev::p::rtp:aws:NodeGroup$aws:eks/nodeGroup:NodeGroup::t4"

Put = Callable[..., None]


def pre(urn: str, op: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON of any shape
    return {
        "resourcePreEvent": {
            "metadata": {"urn": urn, "op": op, "type": urn.split("::")[2].rsplit("$", maxsplit=1)[-1], **more}
        }
    }


def outputs(old: str, new: str) -> dict[str, Any]:
    states = {"old": {"outputs": {"release": old}}, "new": {"outputs": {"release": new}}}
    return {"resOutputsEvent": {"metadata": {"urn": STACK, "op": "same", "type": "pulumi:pulumi:Stack", **states}}}


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a `pulumi` on PATH whose previews have these events, and which notes its arguments in `ran`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(*events: dict[str, Any], status: int = 0) -> None:
        (tmp_path / "events").write_text("".join(f"{json.dumps(one)}\n" for one in events), encoding="utf-8")
        program = tmp_path / "pulumi"
        program.write_text(
            f'#!/bin/sh\necho "$*" >> {tmp_path}/ran\nwhile [ $# -gt 0 ]; do\n'
            f'[ "$1" = --event-log ] && cp {tmp_path}/events "$2"; shift\ndone\nexit {status}\n'
        )
        program.chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("events", "is_unchanged"),
    [
        ([pre(STACK, "same"), outputs("1", "1"), pre(GROUP, "same"), {"summaryEvent": {}}], True),
        ([pre(STACK, "same"), outputs("1", "2"), pre(GROUP, "same")], False),
        ([pre(STACK, "same"), outputs("1", "1"), pre(GROUP, "update")], False),
        ([pre(STACK, "same"), pre(GROUP, "delete")], False),
        ([], False),
    ],
)
def test_an_update_without_changes_changes_no_resource_and_no_output(
    pulumi: Put, events: list[dict[str, Any]], *, is_unchanged: bool
) -> None:
    pulumi(*events)
    status, document = pulumi_cli.shown_preview("dev")
    assert (status, pulumi_cli.is_unchanged(document)) == (0, is_unchanged)


def test_the_steps_are_those_of_a_preview_in_json(pulumi: Put) -> None:
    template = {"launchTemplate": {"id": "lt-1", "version": "1"}}
    states = {"old": {"inputs": template}, "new": {"inputs": {"launchTemplate": {"id": "lt-1", "version": "2"}}}}
    detail = {"launchTemplate.version": {"diffKind": "update", "inputDiff": True}}
    pulumi(pre(STACK, "same"), pre(GROUP, "update", diffs=["launchTemplate"], detailedDiff=detail, **states))
    plan = plan_of_update(pulumi_cli.shown_preview("dev")[1])
    assert [(one.resource, one.effect, one.reasons) for one in plan.rolling] == [
        ("t4", "rolls", ("launchTemplate.version",))
    ]


def test_a_preview_that_fails_has_its_status_and_no_steps(pulumi: Put, tmp_path: Path) -> None:
    pulumi(status=255)
    assert pulumi_cli.shown_preview("dev", refreshes=True) == (255, {"steps": []})
    arguments = (tmp_path / "ran").read_text().split()
    assert (arguments[0], {"--policy-pack", "--refresh"} <= {*arguments}, "--yes" in arguments) == (
        "preview",
        True,
        False,
    )


@pytest.mark.parametrize(("typed", "is_done"), [("dev", True), ("yes", False), ("", False)])
def test_an_update_is_confirmed_by_the_name_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, typed: str, *, is_done: bool
) -> None:
    monkeypatch.setattr("builtins.input", lambda _question: typed)
    commands._confirm(UpdateOptions(env="dev", yes=True))
    if is_done:
        commands._confirm(UpdateOptions(env="dev"))
        return
    with pytest.raises(RefusedError, match="nothing was changed"):
        commands._confirm(UpdateOptions(env="dev"))
