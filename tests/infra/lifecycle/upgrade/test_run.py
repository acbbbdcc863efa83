"""The steps of an upgrade, with the real Kueue; pulumi is a double that looks at the queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from infra.lifecycle.rollout.queues import held_queues, release_queues
from infra.lifecycle.upgrade.run import Upgrade
from infra.lifecycle.upgrade.steps import Step, StepName
from infra.spec.errors import RefusedError
from tests.engines.kubernetes_operators import Operated
from tests.infra.lifecycle.rollout.test_hold import TEAMS, policy
from tests.infra.lifecycle.rollout.test_update import CHANGES_TAGS, ROLLS


@dataclass
class Taken:
    """One upgrade of a cluster.

    Attributes:
        fails: the step at which pulumi fails.
        verified: what the check after the canary group answers, which was made `checked` times.
        proceeds: what the user answers then.
        ran: what each run of pulumi leaves out, and the queues' stop policies meanwhile.
        said: the printed lines.
    """

    queued: Operated
    fails: StepName | None = None
    verified: int = 0
    proceeds: bool = True
    ran: list[tuple[tuple[str, ...], set[str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    checked: int = 0

    def run(self, *names: StepName) -> int:
        """Take the steps; those of nodes roll them."""
        return Upgrade(
            environment="dev",
            api=self.queued.cluster,
            steps=[_Named(name) for name in names],
            pulumi=self._pulumi,
            preview=lambda: CHANGES_TAGS,
            choose=lambda: "drain",
            verify=self._verify,
            proceeds=lambda: self.proceeds,
            seconds=60,
            say=self.said.append,
        ).run()

    @property
    def taken(self) -> list[tuple[str, ...]]:
        return [names for names, _ in self.ran]

    def _verify(self) -> int:
        self.checked += 1
        return self.verified

    def _pulumi(self, excluded: Sequence[str]) -> int:
        self.ran.append((tuple(excluded), {policy(self.queued, team) for team in TEAMS}))
        return 4 if self.fails is not None and (self.fails in excluded) else 0


class _Named(Step):
    """A step that leaves out one resource of its own name."""

    def __init__(self, name: StepName) -> None:
        is_of_nodes = name in {"system-nodes", "canary", "gpu-nodes"}
        excluded = () if name == "platform" else (name,)
        super().__init__(name=name, changes=(), preview=ROLLS if is_of_nodes else CHANGES_TAGS, excluded=excluded)


@pytest.fixture
def taken(queued: Operated) -> Iterator[Taken]:
    """An upgrade on `queued`, whose queues are open again afterwards."""
    yield Taken(queued)
    release_queues(queued.cluster)


def test_queues_are_held_only_while_nodes_roll(taken: Taken) -> None:
    assert taken.run("operators", "canary", "gpu-nodes", "platform") == 0
    open_, held = {"None"}, {"Hold"}
    assert taken.ran == [(("operators",), open_), (("canary",), held), (("gpu-nodes",), held), ((), open_)]
    assert held_queues(taken.queued.cluster) == ()


def test_a_step_that_fails_is_the_last_and_says_its_way_back(taken: Taken) -> None:
    taken.fails = "canary"
    assert taken.run("operators", "canary", "gpu-nodes") == 4
    assert taken.taken == [("operators",), ("canary",)]
    assert taken.said[-2] == "step canary failed; the steps before it are done, and the same command continues with it"
    assert "ROLLBACK=1 ARGS='--only canary'" in taken.said[-1]
    assert held_queues(taken.queued.cluster) == ()


def test_a_canary_that_does_not_pass_keeps_the_other_groups_and_is_checked_again(taken: Taken) -> None:
    taken.verified = 1
    assert taken.run("canary", "gpu-nodes") == 1
    assert taken.taken == [("canary",)]
    assert taken.said[-2].startswith("the canary group does not pass its check; it stays as it is")
    # The command is repeated: the canary group has no changes any more.
    assert taken.run("gpu-nodes", "platform") == 1
    assert taken.taken == [("canary",)]
    taken.verified = 0
    assert taken.run("gpu-nodes", "platform") == 0
    assert (taken.taken, taken.checked) == ([("canary",), ("gpu-nodes",), ()], 3)


def test_a_canary_is_checked_once_and_also_where_no_other_group_follows(taken: Taken) -> None:
    taken.proceeds = False  # nobody is asked
    assert taken.run("canary", "platform") == 0
    taken.proceeds = True
    assert taken.run("canary", "gpu-nodes", "platform") == 0
    assert taken.checked == 2
    taken.proceeds = False
    taken.ran.clear()
    with pytest.raises(RefusedError, match="dev is upgraded up to its canary group") as caught:
        taken.run("canary", "gpu-nodes")
    assert caught.value.remedy == "repeat the command to go on"
    assert taken.taken == [("canary",)]


def test_queues_are_given_back_after_an_interruption(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_excluded: Sequence[str]) -> int:
        assert held_queues(taken.queued.cluster) != ()
        raise KeyboardInterrupt

    monkeypatch.setattr(taken, "_pulumi", interrupted)
    with pytest.raises(KeyboardInterrupt):
        taken.run("gpu-nodes")
    assert held_queues(taken.queued.cluster) == ()
