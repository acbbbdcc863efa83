"""The decision after a failure: restarts by cause, until a budget is spent, a deadline has passed, or a failure repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.training.runs import small_settings
from training.evidence import Evidence
from training.failures import Failure
from training.recovery.budgets import Backoff, Budget, budgets_of
from training.recovery.causes import Cause
from training.recovery.policy import Incident, RecoveryPolicy, Restart, Stop

RESTARTED = [*(Cause.LOST_PROCESS, Cause.LOST_NODE, Cause.COMMUNICATION), *(Cause.HANG, Cause.HARDWARE, Cause.STORAGE)]


def failure(
    cause: Cause = Cause.LOST_PROCESS, *, kind: str = "SIGKILL", step: int | None = None, place: str = ""
) -> Failure:
    return Failure.sudden(f"rank 1: {kind}", kind=kind, cause=cause, found=Evidence(step=step, place=place))


def history(*failures: Failure, committed: Sequence[int] = (), seconds: float = 1.0) -> list[Incident]:
    """The failures of successive attempts, each of which took so many seconds."""
    steps = committed or [0] * len(failures)
    return [
        Incident(attempt=number, began=number * seconds, ended=(number + 1) * seconds, failure=one, committed=step)
        for number, (one, step) in enumerate(zip(failures, steps, strict=True))
    ]


def policy(*, max_restarts: int = 2, **recovery: object) -> RecoveryPolicy:
    settings = small_settings(scale={"max_restarts": max_restarts}, recovery=recovery)
    return RecoveryPolicy(budgets=budgets_of(settings), progress_steps=settings.recovery.progress_steps, seed="run")


@given(
    budgets=st.fixed_dictionaries({cause: st.integers(0, 4) for cause in RESTARTED}),
    causes=st.lists(st.sampled_from(RESTARTED), min_size=1, max_size=20),
)
def test_each_cause_has_its_own_budget(budgets: Mapping[Cause, int], causes: list[Cause]) -> None:
    chosen = RecoveryPolicy(
        budgets={cause: Budget(restarts=number) for cause, number in budgets.items()}, progress_steps=1
    )
    decision = chosen.decide(history(*[failure(cause, kind=cause) for cause in causes]))
    assert isinstance(decision, Restart) == (causes.count(causes[-1]) <= budgets[causes[-1]])


def test_what_another_attempt_would_repeat_is_not_restarted_nor_anything_without_restarts() -> None:
    for cause in (Cause.CODE, Cause.OUT_OF_MEMORY, Cause.FULL_DISK):
        assert policy(max_restarts=9).decide(history(failure(cause))) == Stop()
    for cause in set(Cause) - {Cause.PREEMPTION}:
        assert isinstance(policy(max_restarts=0).decide(history(failure(cause))), Stop), cause


@given(times=st.integers(1, 50), step=st.integers(1, 9) | st.none())
def test_preemptions_are_restarted_at_once_and_without_limit(times: int, step: int | None) -> None:
    decision = policy(max_restarts=0).decide(history(*[failure(Cause.PREEMPTION, step=step)] * times))
    assert isinstance(decision, Restart)
    assert decision.delay == 0


def test_the_budget_that_is_spent_is_named_with_its_setting() -> None:
    decision = policy(max_restarts=1).decide(history(failure(), failure()))
    assert isinstance(decision, Stop)
    assert decision.reason.startswith("Restarts after lost processes are used up: 1 (scale.max_restarts).")
    hardware = policy(hardware={"restarts": 1}).decide(history(*[failure(Cause.HARDWARE)] * 2))
    assert isinstance(hardware, Stop)
    assert "(recovery.hardware.restarts)" in hardware.reason


def test_enough_committed_steps_give_the_budget_back() -> None:
    chosen = policy(max_restarts=2, progress_steps=100)
    for committed, is_restarted in (
        ([0, 0, 0], False),
        ([0, 50, 149], False),
        ([0, 0, 100], True),
        ([0, 100, 150], True),
        ([500, 600, 700], True),
    ):
        assert isinstance(chosen.decide(history(*[failure()] * 2, committed=committed[1:])), Restart)
        third = chosen.decide(history(*[failure()] * 3, committed=committed))
        assert isinstance(third, Restart) == is_restarted, committed


@given(
    gains=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    causes=st.lists(st.sampled_from(RESTARTED), min_size=60, max_size=60),
)
def test_restarts_are_bounded_by_the_steps_of_the_run(gains: list[int], causes: list[Cause]) -> None:
    """As the module says: (steps / progress_steps + 1) times the sum of the budgets."""
    chosen = RecoveryPolicy(budgets={cause: Budget(restarts=1) for cause in RESTARTED}, progress_steps=50)
    committed = [sum(gains[: number + 1]) for number in range(len(gains))]
    incidents = history(*[failure(cause, kind=cause) for cause in causes[: len(gains)]], committed=committed)
    restarts = 0
    while restarts < len(incidents) and isinstance(chosen.decide(incidents[: restarts + 1]), Restart):
        restarts += 1
    assert restarts <= (committed[-1] / 50 + 1) * len(RESTARTED)


def test_a_step_that_fails_three_times_ends_the_run_whatever_the_cause() -> None:
    chosen = policy(max_restarts=9)
    for causes in ([Cause.LOST_PROCESS] * 3, [Cause.HANG, Cause.LOST_PROCESS, Cause.STORAGE], [Cause.HARDWARE] * 3):
        incidents = history(*[failure(cause, kind=cause, step=13) for cause in causes])
        assert isinstance(chosen.decide(incidents[:2]), Restart)
        decision = chosen.decide(incidents)
        assert isinstance(decision, Stop)
        assert decision.reason == "Step 13 failed 3 times, so another restart would fail in it, too."
        assert decision.poison == incidents
    assert isinstance(chosen.decide(history(*[failure()] * 5)), Restart), "before the first step"


@given(steps=st.lists(st.integers(1, 30), min_size=1, max_size=8, unique=True))
def test_failures_in_different_steps_are_no_poison(steps: list[int]) -> None:
    decision = policy(max_restarts=9).decide(history(*[failure(step=step) for step in steps]))
    assert isinstance(decision, Restart)


def test_a_crash_in_the_same_place_ends_the_run() -> None:
    def crash(step: int | None, place: str = "", kind: str = "SIGSEGV") -> Failure:
        return failure(kind=kind, step=step, place=place)

    for earlier, last, is_restarted in (
        (crash(13, "m.py:1 in f"), crash(23, "m.py:1 in f"), False),
        (crash(13, "m.py:1 in f"), crash(23, "m.py:2 in f"), True),
        (crash(13), crash(13, kind="SIGKILL"), True),
        (crash(None), crash(None), True),
    ):
        decision = policy(max_restarts=9).decide(history(earlier, failure(step=20), last))
        assert isinstance(decision, Restart) == is_restarted


def test_starts_are_repeated_until_their_deadline_from_the_first_one_in_a_row() -> None:
    for cause in (Cause.STARTUP, Cause.SCHEDULING):
        chosen = policy(max_restarts=1, **{cause.value: {"deadline": 100, "delay": 10, "longest_delay": 10}})
        decisions = [chosen.decide(history(*[failure(cause)] * count, seconds=20)) for count in range(1, 6)]
        assert [isinstance(one, Restart) for one in decisions] == [True, True, True, True, False]
        assert isinstance(decisions[-1], Stop)
        assert decisions[-1].reason == f"No restart within 100 s of the first start (recovery.{cause}.deadline)."
    long_ago = history(*[failure(Cause.STARTUP)] * 2, failure(), failure(Cause.STARTUP), seconds=40)
    assert isinstance(policy(startup={"deadline": 50}).decide(long_ago), Restart)


def test_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(first=0, second=1, longest=10)
    assert [backoff.seconds(restart) for restart in range(1, 8)] == [0, 1, 2, 4, 8, 10, 10]
    assert backoff.seconds(10_000) == 10


@given(restart=st.integers(1, 40), jitter=st.floats(0, 0.99), seed=st.text(max_size=5))
def test_jitter_only_shortens_and_depends_on_the_seed_alone(restart: int, jitter: float, seed: str) -> None:
    exact = Backoff(first=3, second=5, longest=60)
    jittered = Backoff(first=3, second=5, longest=60, jitter=jitter)
    delay = jittered.seconds(restart, seed=seed)
    assert exact.seconds(restart) * (1 - jitter) <= delay <= exact.seconds(restart)
    assert delay == jittered.seconds(restart, seed=seed)


def test_storage_waits_and_a_lost_process_is_replaced_at_once() -> None:
    for cause, delay in ((Cause.LOST_PROCESS, 0), (Cause.STORAGE, 10)):
        decision = policy().decide(history(failure(cause)))
        assert isinstance(decision, Restart)
        assert decision.delay == delay


def test_the_general_limit_is_the_budget_of_the_causes_that_have_none_and_other_defaults_stay() -> None:
    for limit in (0, 7):
        budgets = budgets_of(small_settings(scale={"max_restarts": limit}))
        shared = {Cause.LOST_PROCESS, Cause.LOST_NODE, Cause.COMMUNICATION, Cause.HANG}
        assert {budgets[cause].restarts for cause in shared} == {limit}
        assert budgets[Cause.PREEMPTION].restarts is None
        assert set(budgets) == set(Cause)
    budget = budgets_of(small_settings(recovery={"storage": {"restarts": 5}}))[Cause.STORAGE]
    assert (budget.restarts, budget.backoff.first) == (5, 10)
