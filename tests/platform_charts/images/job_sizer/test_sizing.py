"""How many pods elastic jobs should have, for any quota, jobs and claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from platform_charts.images.job_sizer.sizing import Claim, Quota, Sized, Target, targets
from platform_charts.images.job_sizer.steps import Holding, Step, WorkerPod, next_step

GPU = ("a10g", "nvidia.com/gpu")
CPU = ("a10g", "cpu")


def sized(
    name: str, pods: int, *, sizes: Sequence[int] = (1, 2, 4, 8), queue: str = "a", may_grow: bool = True
) -> Sized:
    return Sized(name=name, queue=queue, sizes=sizes, pods=pods, needs={GPU: Decimal(1)}, may_grow=may_grow)


def claim(name: str, gpus: int, *, queue: str = "a", order: int = 0, flavors: Sequence[str] = ("a10g",)) -> Claim:
    choice = {flavor: {"nvidia.com/gpu": Decimal(gpus)} for flavor in flavors}
    return Claim(name=name, queue=queue, order=(order, name), choices=[choice])


def quota(a: int, b: int, *, unowned: int = 0, limit: int | None = None) -> Quota:
    """Of two queues, that own and do not use so many GPUs, and of the cohort."""
    return Quota(
        own={"a": {GPU: Decimal(a)}, "b": {GPU: Decimal(b)}},
        idle={GPU: Decimal(a + b + unowned)},
        limits={} if limit is None else {"a": {GPU: Decimal(limit)}},
    )


def test_a_job_grows_into_what_is_idle() -> None:
    for left, expected, case in (
        (quota(0, 0), 1, "nothing is idle"),
        (quota(1, 0), 2, "of its own team"),
        (quota(2, 0), 2, "only to sizes that it can use"),
        (quota(0, 3), 4, "of another team"),
        (quota(0, 0, unowned=9), 8, "that nobody owns, at most its largest size"),
        (quota(1, 7, limit=0), 2, "without what it may not borrow"),
        (quota(3, -2), 2, "of its own team, as far as nobody has borrowed it"),
    ):
        assert targets([sized("grows", 1)], [], left) == {"grows": Target(pods=expected)}, case
    made = targets([sized("grows", 1)], [claim("waits", 3, queue="b")], quota(0, 4))
    assert made == {"grows": Target(pods=2)}, "not into what a waiting job is about to get"
    assert targets([sized("starts", 1, may_grow=False)], [], quota(7, 0)) == {"starts": Target(pods=1)}
    made = targets([sized("old", 1), sized("new", 1)], [], quota(4, 0))
    assert made == {"old": Target(pods=4), "new": Target(pods=2)}, "the older first"


def test_a_job_returns_what_is_beyond_its_largest_size_whoever_waits() -> None:
    limited = sized("limited", 8, sizes=(1, 2))
    assert targets([limited], [], quota(0, 0)) == {"limited": Target(pods=2)}
    made = targets([limited, sized("grows", 1)], [claim("waits", 4)], quota(0, 0))
    assert made == {"limited": Target(pods=2), "grows": Target(pods=2)}
    made = targets([limited, sized("returns", 4)], [claim("waits", 8)], quota(0, 0))
    assert made == {"limited": Target(pods=2), "returns": Target(pods=2, claims=("waits",))}


def test_the_youngest_job_returns_pods_first_to_a_waiting_job_of_its_queue_if_they_are_enough() -> None:
    made = targets([sized("returns", 8)], [claim("waits", 3)], quota(0, 0))
    assert made == {"returns": Target(pods=4, claims=("waits",))}
    made = targets([sized("old", 4), sized("new", 2)], [claim("waits", 3)], quota(0, 0))
    assert made == {"old": Target(pods=2, claims=("waits",)), "new": Target(pods=1, claims=("waits",))}
    assert targets([sized("keeps", 4)], [claim("waits", 5)], quota(0, 0)) == {"keeps": Target(pods=4)}
    waiting = [claim("later", 2, order=1), claim("first", 4, order=0)]
    made = targets([sized("returns", 8)], waiting, quota(0, 0))
    assert made == {"returns": Target(pods=2, claims=("first", "later"))}, "in the order of the queue"


def test_a_job_returns_to_another_queue_no_more_than_it_has_borrowed() -> None:
    borrowed_two = quota(-2, 2)
    lent = Quota(own=borrowed_two.own, idle={GPU: Decimal(0)}, limits={})
    assert targets([sized("keeps", 4, sizes=(1, 2, 4))], [claim("owner", 3, queue="b")], lent) == {
        "keeps": Target(pods=4)
    }
    made = targets([sized("returns", 4, sizes=(1, 2, 4))], [claim("owner", 2, queue="b")], lent)
    assert made == {"returns": Target(pods=2, claims=("owner",))}


def test_resources_of_which_less_is_borrowed_do_not_hold_pods_back() -> None:
    job = Sized(
        name="returns", queue="a", sizes=(1, 2, 4), pods=4, needs={GPU: Decimal(1), CPU: Decimal(11)}, may_grow=True
    )
    lent = Quota(
        own={"a": {GPU: Decimal(-2), CPU: Decimal(-18)}, "b": {GPU: Decimal(2), CPU: Decimal(24)}},
        idle={GPU: Decimal(0), CPU: Decimal(4)},
        limits={},
    )
    wants = Claim(
        name="owner", queue="b", order=(0, ""), choices=[{"a10g": {"nvidia.com/gpu": Decimal(2), "cpu": Decimal(22)}}]
    )
    assert targets([job], [wants], lent) == {"returns": Target(pods=2, claims=("owner",))}


def test_a_job_that_may_have_another_group_waits_for_the_one_that_lacks_less() -> None:
    other = {("t4", "nvidia.com/gpu"): Decimal(4)}
    left = Quota(own={"a": {GPU: Decimal(0), **other}}, idle={GPU: Decimal(0), **other}, limits={})
    assert targets([sized("keeps", 4)], [claim("waits", 2, flavors=("a10g", "t4"))], left) == {"keeps": Target(pods=4)}


_JOBS = st.lists(
    st.builds(
        lambda queue, pods, more: (queue, pods, more), st.sampled_from(["a", "b"]), st.integers(1, 8), st.booleans()
    ),
    max_size=4,
)
_CLAIMS = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 12)), max_size=4)


@given(jobs=_JOBS, waiting=_CLAIMS, a=st.integers(0, 8), b=st.integers(0, 8))
def test_growth_never_exceeds_what_is_idle_and_nobody_goes_below_its_fewest(
    jobs: list[tuple[str, int, bool]], waiting: list[tuple[str, int]], a: int, b: int
) -> None:
    running = [
        sized(f"job-{index}", pods, sizes=tuple(range(1, 9)), queue=queue, may_grow=more)
        for index, (queue, pods, more) in enumerate(jobs)
    ]
    claims = [claim(f"claim-{index}", gpus, queue=queue, order=index) for index, (queue, gpus) in enumerate(waiting)]
    used = {queue: sum(job.pods for job in running if job.queue == queue) for queue in ("a", "b")}
    own = {queue: {GPU: Decimal(most - used[queue])} for queue, most in (("a", a), ("b", b))}
    idle = max(0, a + b - sum(used.values()))
    made = targets(running, claims, Quota(own=own, idle={GPU: Decimal(idle)}, limits={}))
    grown = sum(max(0, made[job.name].pods - job.pods) for job in running)
    assert grown <= idle
    assert all(made[job.name].pods >= 1 for job in running)
    assert all(bool(made[job.name].claims) == (made[job.name].pods < job.pods) for job in running)
    returned = sum(max(0, job.pods - made[job.name].pods) for job in running)
    assert returned <= sum(gpus for _queue, gpus in waiting)


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
    beyond_the_limit = replace(asking, sizes=(1, 2))
    assert next_step(beyond_the_limit, Target(pods=1)).asked == 2, "at once"


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


def test_pods_that_end_stay_named_whether_others_are_to_end_as_well_or_the_job_may_keep_its_pods_after_all() -> None:
    ending = [pod("a"), pod("b"), pod("c", is_going=True)]
    fewer = next_step(holding(4, 4, 2, [*ending, pod("d", is_going=True)]), Target(pods=1, claims=("team/waits",)))
    assert (fewer.cluster, fewer.leaving) == (1, ("b", "c", "d"))
    all_again = next_step(holding(4, 4, 2, ending), Target(pods=4))
    assert (all_again.asked, all_again.cluster, all_again.leaving) == (None, 4, ("c",))


def test_the_pod_that_leaves_is_the_one_of_least_use() -> None:
    target = Target(pods=2, claims=("team/waits",))
    for case, leaving, running in (
        ("is not ready", "b", [pod("a"), pod("b", is_ready=False), pod("c")]),
        ("alone on a node that came later", "b", [pod("a"), pod("b", node="m"), pod("c")]),
        ("the newest", "c", [pod("a", node=""), pod("b", node="m"), pod("c", node="m")]),
    ):
        assert next_step(holding(3, 3, 3, running), target).leaving == (leaving,), case


def test_a_job_without_quota_asks_for_the_fewest_and_keeps_no_more_if_it_runs() -> None:
    text = "waits for 1 of 1-4 worker pods"
    assert next_step(holding(4, None, None), None) == Step(asked=1, text=text)
    assert next_step(holding(1, None, None), None) == Step(text=text)
    running = next_step(holding(4, None, 2, pods("a", "b")), None)
    assert running == Step(asked=1, cluster=1, leaving=("b",), text=text)
