"""Queues that are held while nodes are replaced, with the real Kueue, KubeRay and scheduler; Ray's drivers are fakes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.rollout import hold
from infra.lifecycle.rollout.hold import await_empty, holding, holds_in_use, release_surely, say_held
from infra.lifecycle.rollout.jobs import running_jobs
from infra.lifecycle.rollout.queues import (
    _MANAGER,
    HELD,
    held_queues,
    hold_queues,
    kept,
    release_queues,
    renew_holds,
    stopped_queues,
)
from infra.spec.cluster_names import KUEUE_API
from infra.spec.errors import RefusedError
from infra.spec.manifest import MANAGED_BY, Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from training.cluster.state import JobState

TEAMS = ("platform", "research")


@pytest.fixture
def held(queued: Operated) -> Iterator[Operated]:
    yield queued
    release_queues(queued.cluster)
    assert {policy(queued, team) for team in TEAMS} == {"None"}


def queue(queued: Operated, team: str) -> Manifest:
    found = queued.cluster.read(api_object(KUEUE_API, "ClusterQueue", team))
    assert found is not None
    return found


def policy(queued: Operated, team: str) -> str:
    return str(queue(queued, team)["spec"]["stopPolicy"])


def running(queued: Operated, name: str) -> Manifest:
    """A job of all GPUs of a group, whose driver runs."""
    submitted = queued.submit(job(name, team="research", group="a10g", workers=8))
    queued.dashboards.say(name, "RUNNING")
    queued.await_state(submitted, is_running, what="running")
    return submitted


def is_running(state: JobState) -> bool:
    return state.stage == "running"


def test_a_held_queue_admits_no_job_while_those_that_run_go_on(held: Operated) -> None:
    first = running(held, "first")
    assert hold_queues(held.cluster, "Hold") == TEAMS
    second = held.submit(job("second", team="platform", workers=1, gpus_per_worker=0))
    said = "held while the platform is updated"
    held.await_state(second, lambda state: state.stage == "queued" and said in state.reason, what="held")
    assert is_running(held.look(first))
    assert release_queues(held.cluster) == TEAMS
    held.await_state(second, lambda state: state.stage == "starting", what="admitted")


@pytest.mark.timeout(300)
def test_a_drained_job_resumes_its_run_by_itself_and_uses_up_no_retry(held: Operated) -> None:
    drained = running(held, "drained")
    before = held.cluster.read(drained)
    hold_queues(held.cluster, "HoldAndDrain")
    said: list[str] = []
    await_empty(held.cluster, "HoldAndDrain", say=said.append, seconds=120)
    assert "job research/drained: on a10g, heads, 8 GPUs" in said[0]
    held.await_state(drained, lambda state: state.stage == "queued", what="queued again")
    assert held.pods(drained) == []
    release_queues(held.cluster)
    held.await_state(drained, is_running, what="running again")
    after = held.cluster.read(drained)
    assert before is not None
    assert after is not None
    words = shlex.split(after["spec"]["entrypoint"])
    assert words[words.index("--name") + 1] == "drained"
    assert after["status"].get("failed", 0) == 0
    assert after["status"]["rayClusterName"] != before["status"]["rayClusterName"]
    # The deadline counts from the new admission.
    assert after["status"]["startTime"] > before["status"]["startTime"]
    assert "requeueState" not in held.workload(drained)["status"]


def test_an_update_of_the_stack_leaves_held_queues_alone(held: Operated) -> None:
    hold_queues(held.cluster, "Hold")
    (manifest,) = [one for one in held.environment.manifests if one["kind"] == "ClusterQueue" and
                   one["metadata"]["name"] == "research"]  # fmt: skip
    held.cluster.apply(manifest)
    assert policy(held, "research") == "Hold"
    assert held_queues(held.cluster) == TEAMS


def test_a_later_command_can_drain_held_queues_but_not_release_those_of_an_administrator(held: Operated) -> None:
    stopped = queue(held, "research")
    held.cluster.patch(stopped, {"spec": {"stopPolicy": "Hold"}})
    try:
        assert hold_queues(held.cluster, "Hold") == ("platform",)
        assert hold_queues(held.cluster, "HoldAndDrain") == TEAMS
        assert {policy(held, team) for team in TEAMS} == {"HoldAndDrain"}
        release_queues(held.cluster)
        assert policy(held, "research") == "Hold"
        assert HELD not in queue(held, "research")["metadata"].get("annotations", {})
    finally:
        held.cluster.patch(stopped, {"spec": {"stopPolicy": "None"}})


def test_a_queue_that_a_user_holds_is_the_users_beside_any_update(held: Operated) -> None:
    assert hold_queues(held.cluster, "Hold", by_update=True) == TEAMS
    assert held_queues(held.cluster, by_update=True) == TEAMS
    hold_queues(held.cluster, "Hold")
    assert hold_queues(held.cluster, "HoldAndDrain", by_update=True) == TEAMS
    assert {policy(held, team) for team in TEAMS} == {"HoldAndDrain"}
    assert release_queues(held.cluster, by_update=True) == ()
    assert held_queues(held.cluster) == TEAMS


def test_the_holds_of_an_update_that_runs_differ_from_those_of_one_that_was_killed(
    held: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another update that ends must not release the first one's queues, nor replace nodes beside it."""
    monkeypatch.setattr(hold, "_RENEWAL_SECONDS", 1.0)
    hold_queues(held.cluster, "Hold", by_update=True)
    assert holds_in_use(held.cluster) == (), "killed"
    with holding(held.cluster, "Hold", env="dev", say=print, seconds=5):
        assert set(holds_in_use(held.cluster)) <= set(TEAMS)
        assert holds_in_use(held.cluster) != ()
        with (
            pytest.raises(RefusedError, match="another update of dev, which still runs, holds the queues"),
            holding(held.cluster, "Hold", env="dev", say=print, seconds=5),
        ):
            pytest.fail("beside the first")
        assert held_queues(held.cluster, by_update=True) == TEAMS
    assert held_queues(held.cluster) == ()


def test_a_queue_that_somebody_has_stopped_stays_so_when_pulumi_takes_over_what_kubectl_has_set(held: Operated) -> None:
    stopped = queue(held, "research")
    # As `kubectl patch` does, and then Pulumi's provider, before it applies what the program has.
    held.cluster.patch(stopped, {"spec": {"stopPolicy": "Hold"}})
    with kept(held.cluster, say=print):
        fields = [one for one in queue(held, "research")["metadata"]["managedFields"] if one["operation"] == "Apply"]
        assert [one["manager"] for one in fields if "f:stopPolicy" in one["fieldsV1"]["f:spec"]] == [_MANAGER]
    assert stopped_queues(held.cluster) == {"research": "Hold"}
    assert release_queues(held.cluster) == ()
    said: list[str] = []
    say_held(held.cluster, env="dev", say=said.append)
    assert len(said) == 1
    assert 'kubectl patch clusterqueue research --type merge -p \'{"spec":{"stopPolicy":"None"}}\'' in said[0]
    held.cluster.patch(stopped, {"spec": {"stopPolicy": "None"}})
    assert stopped_queues(held.cluster) == {}


@pytest.mark.parametrize("by_update", [False, True])
def test_a_policy_that_somebody_sets_on_a_held_queue_outlasts_the_hold(held: Operated, *, by_update: bool) -> None:
    hold_queues(held.cluster, "Hold", by_update=by_update)
    stopped = queue(held, "research")
    held.cluster.patch(stopped, {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert stopped_queues(held.cluster) == {"research": "HoldAndDrain"}
    if by_update:  # which renews it, or another one holds again and changes before it releases them
        renew_holds(held.cluster)
        hold_queues(held.cluster, "Hold", by_update=True)
        assert stopped_queues(held.cluster) == {"research": "HoldAndDrain"}
        with kept(held.cluster, say=print):
            fields = queue(held, "research")["metadata"]["managedFields"]
            assert _MANAGER in [one["manager"] for one in fields if "f:stopPolicy" in one["fieldsV1"].get("f:spec", {})]
    assert release_queues(held.cluster, by_update=by_update) == tuple(name for name in TEAMS if name != "research")
    assert stopped_queues(held.cluster) == {"research": "HoldAndDrain"}
    assert held_queues(held.cluster) == ()
    held.cluster.patch(stopped, {"spec": {"stopPolicy": "None"}})


@pytest.mark.parametrize("is_one_stopped", [False, True])
def test_a_new_queue_is_held_where_the_user_holds_others_and_none_is_open(
    held: Operated, *, is_one_stopped: bool
) -> None:
    later = queue(held, "research")
    if is_one_stopped:
        held.cluster.patch(later, {"spec": {"stopPolicy": "HoldAndDrain"}})
    new = {**later, "metadata": {"name": "later", "labels": later["metadata"]["labels"]}}
    for name, is_held in (("later-1", False), ("later-2", True)):
        if is_held:
            hold_queues(held.cluster, "Hold")
        with kept(held.cluster, say=print):
            held.cluster.create({**new, "metadata": {**new["metadata"], "name": name}})
        try:
            assert policy(held, name) == ("Hold" if is_held else "None")
        finally:
            held.cluster.delete_all([api_object(KUEUE_API, "ClusterQueue", name)], seconds=60)
    assert release_queues(held.cluster) == TEAMS[: 1 if is_one_stopped else None]
    held.cluster.patch(later, {"spec": {"stopPolicy": "None"}})


def test_the_queues_are_released_whatever_ends_the_update(held: Operated) -> None:
    def fail(error: type[BaseException]) -> None:
        assert held_queues(held.cluster) == TEAMS
        raise error("the update failed")

    for error in (RefusedError, KeyboardInterrupt):
        said: list[str] = []
        with pytest.raises(error), holding(held.cluster, "Hold", env="dev", say=said.append, seconds=5):
            fail(error)
        assert held_queues(held.cluster) == ()
        assert said == ["queues released: platform, research"]


def test_a_job_that_does_not_end_in_time_is_named_and_those_of_other_groups_are_not_waited_for(held: Operated) -> None:
    running(held, "endless")
    with pytest.raises(RefusedError) as caught, holding(held.cluster, "Hold", env="dev", say=print, seconds=0):
        pytest.fail("the nodes are not empty")
    assert "job research/endless: on a10g, heads, 8 GPUs, since 20" in str(caught.value)
    assert "JOBS=drain, or DRAIN=1 of `make hold`" in caught.value.remedy
    assert held_queues(held.cluster) == ()
    assert running_jobs(held.cluster, groups=frozenset({"t4"})) == ()
    assert [one.name for one in running_jobs(held.cluster, groups=frozenset({"t4", "a10g"}))] == ["endless"]
    await_empty(held.cluster, "Hold", say=print, seconds=0, groups=frozenset({"t4"}))


class Unsteady:
    """Fails the first requests of an API server, then passes them on."""

    def __init__(self, patch: pytest.MonkeyPatch, api: KubernetesApi, *errors: Exception) -> None:
        self.errors, self._items = list(errors), api.items
        patch.setattr(api, "items", self.items)
        patch.setattr(hold, "_POLL_SECONDS", 0.0)

    def items(self, *arguments: Any, **options: Any) -> list[Manifest]:  # noqa: ANN401 - as of the API server
        if self.errors:
            raise self.errors.pop()
        return self._items(*arguments, **options)


LOST, FORBIDDEN = ConnectionLostError("no answer"), ApiError("forbidden", code=403)


def test_a_wait_and_a_release_outlast_what_may_pass(custom_resources: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = api_object(KUEUE_API, "ClusterQueue", "alone", labels={"app.kubernetes.io/managed-by": MANAGED_BY}, spec={})
    custom_resources.delete_all(custom_resources.items("ray.io/v1", "RayJob"))  # of other tests, without operators
    with custom_resources.applied(queue):
        # An environment of other tests may have queues too.
        held = hold_queues(custom_resources, "Hold", by_update=True)
        assert "alone" in held
        flaky = Unsteady(monkeypatch, custom_resources)
        for error in (LOST, ApiError("failed calling webhook", code=500)):
            said: list[str] = []
            flaky.errors += [error, error]
            await_empty(custom_resources, "Hold", say=said.append, seconds=60)
            assert said == [f"retrying: {error.args[0]}"]
            flaky.errors += [error, error]
            release_surely(custom_resources, env="dev", say=said.append)
            assert said[1:] == [f"queues released: {', '.join(held)}"]
            assert held_queues(custom_resources) == ()
            hold_queues(custom_resources, "Hold", by_update=True)
        release_queues(custom_resources)


def test_a_wait_does_not_outlast_a_refusal(custom_resources: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Unsteady(monkeypatch, custom_resources, FORBIDDEN)
    with pytest.raises(ApiError, match="forbidden"):
        await_empty(custom_resources, "Hold", say=print, seconds=60)


def test_queues_that_stay_held_are_reported(kubernetes_api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky, unknown = Unsteady(monkeypatch, kubernetes_api), ApiError("unknown kind", code=404)
    for error in (LOST, FORBIDDEN):
        said: list[str] = []
        flaky.errors[:] = [error] * 1000
        release_surely(kubernetes_api, env="dev", say=said.append, seconds=0)
        (line,) = said
        assert error.args[0] in line
        assert "make release-queues ENV=dev" in line
    flaky.errors[:] = [unknown, unknown]
    assert hold_queues(kubernetes_api, "Hold") == ()
    assert release_queues(kubernetes_api) == ()
