"""The next step of an elastic job: Kueue is asked first and told last, so that it never counts less than what runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from platform_charts.images.job_sizer.sizing import Target
from platform_charts.images.job_sizer.steps import Holding, Step, WorkerPod, next_step

SIZES = (1, 2, 4)


def pod(name: str, *, node: str = "n", is_ready: bool = True, is_going: bool = False) -> WorkerPod:
    """A pod whose name tells when it was created."""
    return WorkerPod(name=name, node=node, created=name, is_ready=is_ready, is_going=is_going)


def holding(asked: int, admitted: int | None, cluster: int | None, pods: Sequence[WorkerPod] = ()) -> Holding:
    return Holding(sizes=SIZES, asked=asked, admitted=admitted, cluster=cluster, pods=pods)


def pods(*names: str) -> list[WorkerPod]:
    return [pod(name) for name in names]


def test_a_job_that_grows_asks_kueue_before_there_are_more_pods_and_is_left_alone_then() -> None:
    target = Target(pods=4)
    asks = Step(asked=4, text="1 of 1-4 worker pods; asks for 4")
    assert next_step(holding(1, 1, 1, pods("a")), target) == asks
    text = "4 of 1-4 worker pods"
    assert next_step(holding(4, 4, 1, pods("a")), target) == Step(cluster=4, text=text)
    assert next_step(holding(4, 4, 4, pods("a", "b", "c", "d")), target) == Step(text=text)


def test_a_request_that_kueue_does_not_admit_is_taken_back_after_a_while() -> None:
    asking = holding(4, 1, 1, pods("a"))
    text = "1 of 1-4 worker pods"
    assert next_step(asking, Target(pods=1)) == Step(text=text)
    assert next_step(replace(asking, has_waited=True), Target(pods=1)) == Step(asked=1, text=text)


def test_a_job_that_shrinks_ends_its_newest_pods_and_keeps_its_quota_while_they_end() -> None:
    target = Target(pods=2, claims=("team/waits",))
    running = pods("a", "b", "c", "d")
    first = next_step(holding(4, 4, 4, running), target)
    text = "4 of 1-4 worker pods; returns 2 to team/waits"
    assert first == Step(cluster=2, leaving=("c", "d"), text=text)
    ending = [*running[:2], pod("c", is_going=True), pod("d", is_going=True)]
    assert next_step(holding(4, 4, 2, ending), target) == Step(text=text)
    assert next_step(holding(4, 4, 2, ending[:3]), target) == Step(text=text)
    done = next_step(holding(4, 4, 2, running[:2]), target)
    assert done == Step(asked=2, text="2 of 1-4 worker pods; returned 2 to team/waits")


def test_a_job_that_its_user_limits_returns_pods_to_nobody() -> None:
    limited, running = (1, 2), pods("a", "b", "c", "d")
    first = next_step(replace(holding(4, 4, 4, running), sizes=limited), Target(pods=2))
    assert first == Step(cluster=2, leaving=("c", "d"), text="4 worker pods, limited to 2; returns 2")
    done = next_step(replace(holding(4, 4, 2, running[:2]), sizes=limited), Target(pods=2))
    assert done == Step(asked=2, text="2 of 1-2 worker pods; returned 2")
    fixed = next_step(replace(holding(1, 1, 1, running[:1]), sizes=(1,)), Target(pods=1))
    assert fixed == Step(text="1 of 1 worker pod")


def test_a_request_beyond_the_limit_is_taken_back_at_once() -> None:
    asking = replace(holding(4, 1, 1, pods("a")), sizes=(1, 2))
    assert next_step(asking, Target(pods=1)).asked == 2


def test_pods_that_end_stay_named_when_others_are_to_end_as_well() -> None:
    ending = [pod("a"), pod("b"), pod("c", is_going=True), pod("d", is_going=True)]
    step = next_step(holding(4, 4, 2, ending), Target(pods=1, claims=("team/waits",)))
    assert (step.cluster, step.leaving) == (1, ("b", "c", "d"))


def test_a_job_that_may_keep_its_pods_after_all_gets_them_again_beside_those_that_end() -> None:
    ending = [pod("a"), pod("b"), pod("c", is_going=True)]
    step = next_step(holding(4, 4, 2, ending), Target(pods=4))
    assert (step.asked, step.cluster, step.leaving) == (None, 4, ("c",))


def test_the_pod_that_leaves_is_the_one_of_least_use() -> None:
    target = Target(pods=2, claims=("team/waits",))
    for case, leaving, running in (
        ("is not ready", "b", [pod("a"), pod("b", is_ready=False), pod("c")]),
        ("alone on a node that came later", "b", [pod("a"), pod("b", node="m"), pod("c")]),
        ("the newest", "c", [pod("a", node=""), pod("b", node="m"), pod("c", node="m")]),
    ):
        assert next_step(holding(3, 3, 3, running), target).leaving == (leaving,), case


def test_a_queued_job_asks_for_the_fewest() -> None:
    assert next_step(holding(4, None, None), None) == Step(asked=1, text="waits for 1 of 1-4 worker pods")
    assert next_step(holding(1, None, None), None) == Step(text="waits for 1 of 1-4 worker pods")


def test_a_job_that_has_lost_its_quota_while_it_runs_keeps_the_fewest_pods() -> None:
    step = next_step(holding(4, None, 2, pods("a", "b")), None)
    assert step == Step(asked=1, cluster=1, leaving=("b",), text="waits for 1 of 1-4 worker pods")
