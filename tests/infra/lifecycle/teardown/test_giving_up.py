"""What is on a cluster that is given up goes out of the stack's state, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from infra.lifecycle.teardown.giving_up import forget_cluster
from infra.spec.stack_outputs import NoStackError

ASKING = ("infra.lifecycle.stack.state.ask_pulumi", "infra.lifecycle.teardown.giving_up.ask_pulumi")
"""Where pulumi is asked."""
CHARTS = "urn:pulumi:dev::p::rtp:kubernetes:Charts::charts"
CHART = "urn:pulumi:dev::p::rtp:kubernetes:Charts$kubernetes:helm.sh/v3:Release::kueue"
KEY = "urn:pulumi:dev::p::aws:kms/key:Key::volumes"
PROVIDER = "urn:pulumi:dev::p::pulumi:providers:kubernetes::kubernetes"


def _pulumi_is(answer: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ASKING:
        monkeypatch.setattr(place, answer)


def test_charts_objects_and_their_components_leave_the_state_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    # A URN is there twice while an old resource is being replaced.
    urns = (CHARTS, CHART, KEY, PROVIDER, CHART)
    resources = [{"urn": urn, "type": urn.split("::")[2].rpartition("$")[2]} for urn in urns]

    def answer(environment: str, *command: str) -> str:
        asked.append((environment, *command))
        return json.dumps({"deployment": {"resources": resources}})

    _pulumi_is(answer, monkeypatch)
    said: list[str] = []
    forget_cluster("dev", say=said.append)
    assert asked[1:] == [("dev", "state", "delete", CHARTS, CHART, "--yes")]
    assert said == ["taking 2 resources on the cluster out of the stack's state"]


def test_a_state_without_them_and_a_stack_that_is_gone_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _pulumi_is(lambda *_: json.dumps({"deployment": {"resources": []}}), monkeypatch)
    said: list[str] = []
    forget_cluster("dev", say=said.append)

    def fail(*_: str) -> str:
        raise NoStackError("no stack named dev")

    _pulumi_is(fail, monkeypatch)
    forget_cluster("dev", say=said.append)
    assert said == []
