"""An update that replaces nodes, with the real Kueue, KubeRay and scheduler; Pulumi is a double that looks at the queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from infra.lifecycle.commands import stack
from infra.lifecycle.rollout import hold
from infra.lifecycle.rollout.plan import Choice
from infra.lifecycle.rollout.queues import held_queues, hold_queues, release_queues
from infra.lifecycle.rollout.update import GuardedUpdate
from infra.spec.errors import RefusedError
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.infra.lifecycle.rollout.test_hold import TEAMS, policy, running
from tests.infra.lifecycle.rollout.test_plan import UNKNOWN, namespace_step, step

ROLLS = {"steps": [step("update", launchTemplate={"id": "lt-1", "version": UNKNOWN})]}
CHANGES_TAGS = {"steps": [step("update", tags={"owner": "other@example.com"})]}


@dataclass
class Update:
    """One `make up` on a cluster: what it printed, and the stop policies of the queues while `pulumi up` ran."""

    queued: Operated
    said: list[str] = field(default_factory=list)
    policies: list[set[str]] = field(default_factory=list)

    def run(self, preview: Mapping[str, object], choose: Callable[[], Choice] = lambda: pytest.fail("no jobs")) -> int:
        return GuardedUpdate(
            environment="dev",
            api=self.queued.cluster,
            preview=preview,
            pulumi=self._pulumi,
            choose=choose,
            seconds=60,
            say=self.said.append,
        ).run()

    def _pulumi(self) -> int:
        self.policies.append({policy(self.queued, team) for team in TEAMS})
        return 7


@pytest.fixture
def update(queued: Operated) -> Iterator[Update]:
    """An update on `queued`, whose queues are open again afterwards."""
    yield Update(queued)
    release_queues(queued.cluster)


def test_an_update_that_replaces_no_nodes_holds_nothing_and_asks_nothing(update: Update) -> None:
    assert update.run(CHANGES_TAGS) == 7
    assert (update.policies, update.said) == ([{"None"}], [])


def test_no_job_starts_on_nodes_that_roll(update: Update) -> None:
    assert update.run(ROLLS) == 7
    assert update.policies == [{"Hold"}]
    assert "no job runs on them" in update.said
    assert held_queues(update.queued.cluster) == ()


def test_jobs_are_drained_before_their_nodes_roll_and_queued_again(update: Update) -> None:
    drained = running(update.queued, "rolled")
    assert update.run(ROLLS, lambda: "drain") == 7
    assert update.policies == [{"HoldAndDrain"}]
    assert "node group a10g rolls (launchTemplate)" in update.said
    assert any("job research/rolled" in line for line in update.said)
    update.queued.await_state(drained, lambda state: state.stage == "starting", what="admitted again")


def test_a_team_is_removed_only_after_a_choice_about_its_jobs_and_others_run_on(
    update: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _question: "")
    running(update.queued, "theirs")
    waiting = update.queued.submit(job("waits", team="platform", group="a10g", workers=8))
    update.queued.await_state(waiting, lambda state: state.stage == "queued", what="queued")
    assert update.run({"steps": [namespace_step("delete", "platform")]}) == 7
    assert not any("job research/theirs" in line for line in update.said)
    assert "jobs in the queue that are deleted: platform/waits" in update.said
    with pytest.raises(RefusedError, match="of a team that is removed"):
        update.run({"steps": [namespace_step("delete", "research")]}, lambda: stack._choice(None))
    assert any("job research/theirs" in line for line in update.said)
    assert update.run({"steps": [namespace_step("delete", "research")]}, lambda: "drain") == 7
    assert update.policies == [{"None"}, {"HoldAndDrain"}]


def test_without_a_choice_nothing_is_changed(update: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    running(update.queued, "undecided")
    monkeypatch.setattr("builtins.input", lambda _question: "")
    with pytest.raises(RefusedError, match="nothing was changed: jobs run on nodes that roll") as caught:
        update.run(ROLLS, lambda: stack._choice(None))
    assert "JOBS=wait, JOBS=drain or JOBS=go" in caught.value.remedy
    assert update.policies == []
    assert update.run(ROLLS, lambda: stack._choice("go")) == 7
    assert update.policies == [{"None"}]


def test_what_an_update_held_that_was_killed_is_released_after_the_next_one(
    update: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "_RENEWAL_SECONDS", 0.5)
    hold_queues(update.queued.cluster, "Hold", by_update=True)
    assert update.run(ROLLS) == 7
    assert update.policies == [{"Hold"}]
    assert held_queues(update.queued.cluster) == ()


def test_queues_that_the_user_holds_stay_held(update: Update) -> None:
    hold_queues(update.queued.cluster, "Hold")
    assert update.run(ROLLS) == 7
    assert held_queues(update.queued.cluster) == TEAMS
