"""The goodput ledger: logs whose answer is known for every class."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from observability.goodput import GoodputLedger
from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Event,
    Notice,
    Phase,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
    WorkersFailed,
    WorkersMoved,
)
from tests.observability.sample_run import restarted_run, write_run


def folded(events: Iterable[Event]) -> GoodputLedger:
    ledger = GoodputLedger()
    for event in events:
        ledger.add(event)
    return ledger


def seconds_of(events: Iterable[Event]) -> dict[str, float]:
    """The classes that took time, in seconds rounded to a microsecond."""
    return {name: round(value, 6) for name, value in folded(events).seconds.items() if value > 1e-9}


def started(time: float) -> RunStarted:
    return RunStarted(time=time, run="a", settings={}, environment={})


def ready(time: float, *, start_step: int = 0) -> TrainingStarted:
    return TrainingStarted(
        time=time,
        world=2,
        start_step=start_step,
        total_steps=100,
        steps_per_epoch=10,
        parameters=1,
        train_samples=1,
        dataset_fingerprint="ab",
    )


def step(number: int, time: float) -> Step:
    """A step of two seconds: 1.4 of computing, of which 0.2 wait for rank 1, 0.3 of data, 0.2 of checkpoint, 0.1 of the rest."""
    return Step(
        time=time,
        step=number,
        epoch=1,
        loss=1.0,
        gradient_norm=1.0,
        learning_rate=0.1,
        samples=8,
        seconds=2.0,
        data_seconds=0.3,
        forward_seconds=0.5,
        backward_seconds=0.8,
        optimizer_seconds=0.1,
        checkpoint_seconds=0.2,
        rank_seconds=[0.8, 1.0],
    )


def steps(first: int, last: int, *, since: float) -> list[Step]:
    """Steps one after the other."""
    return [step(number, since + 2 * (number - first + 1)) for number in range(first, last + 1)]


def evaluated(time: float, *, split: str = "validation", at_step: int = 1) -> Evaluated:
    return Evaluated(time=time, split=split, step=at_step, epoch=1, loss=1.0, samples=8, seconds=3.0)


def failed(time: float, *, restarts: bool = True) -> WorkersFailed:
    return WorkersFailed(time=time, attempt=0, reason="rank 1 was killed by SIGKILL", restarts=restarts)


FIRST_START = [started(100.0), Phase(time=103.0, name="workers_start"), ready(110.0)]
RANK_FINISHES = Phase(time=120.0, name="finish", process="rank 0")
DRIVER_FINISHES = Phase(time=126.0, name="finish")
TWO_STEPS = {"productive": 2.4, "data": 0.6, "communication": 0.4, "checkpoint": 0.4, "other": 0.2}


def test_a_run_without_failures_has_start_up_loop_evaluation_and_finish() -> None:
    ended = RunEnded(time=127.0, status="done", step=2)
    test = evaluated(124.0, split="test")
    events = [*FIRST_START, *steps(1, 2, since=110), evaluated(118.0), RANK_FINISHES, test, DRIVER_FINISHES, ended]
    ledger = folded(events)
    # 1 s before the evaluation and 2 s after it are the loop's; 1 s before the test and 3 s after it are the finish.
    assert seconds_of(events) == TWO_STEPS | {"startup": 10.0, "evaluation": 6.0, "finish": 4.0, "other": 3.2}
    assert ledger.wall_seconds == pytest.approx(27.0)
    assert ledger.ratio == pytest.approx(2.4 / 27)
    assert ledger.describe() == "8.9 %; startup 10.0 s (37.0 %), evaluation 6.0 s (22.2 %), finish 4.0 s (14.8 %)"
    beside = replace(evaluated(112.5), is_asynchronous=True)
    next_to_it = [*FIRST_START, *steps(1, 1, since=110), beside, *steps(2, 2, since=112)]
    assert seconds_of(next_to_it) == TWO_STEPS | {"startup": 10.0}
    nothing = GoodputLedger()
    assert (nothing.ratio, nothing.wall_seconds, nothing.has_trained, nothing.losses()) == (0.0, 0.0, False, [])


def test_a_failure_is_detected_and_restarted_and_repeats_steps() -> None:
    after = [failed(125.0), Phase(time=126.0, name="workers_start"), ready(133.0, start_step=2)]
    events = [*FIRST_START, *steps(1, 4, since=110), *after, *steps(3, 4, since=133)]
    four = {name: 2 * value for name, value in TWO_STEPS.items()}
    # The time of steps 3 and 4 of the first attempt is lost.
    assert seconds_of(events) == four | {"startup": 10.0, "detection": 7.0, "restart": 8.0, "lost": 4.0}


def test_what_failures_took_is_known_by_their_causes() -> None:
    first, second = replace(failed(125.0), cause="lost_process"), replace(failed(160.0), cause="storage")
    events = [*FIRST_START, *steps(1, 4, since=110), first, ready(133.0, start_step=2), *steps(3, 4, since=133)]
    ledger = folded([*events, second, Phase(time=161.0, name="backoff"), ready(170.0, start_step=4)])
    assert ledger.failure_seconds.keys() == {"lost_process", "storage"}
    recovered = ledger.seconds["detection"] + ledger.seconds["restart"] + ledger.seconds["lost"]
    assert sum(ledger.failure_seconds.values()) == pytest.approx(recovered)
    assert ledger.failure_seconds["storage"] == pytest.approx(170 - max(event.time for event in events))
    assert "; lost process " in ledger.describe()


def test_the_whole_pause_of_a_change_of_workers_is_restart() -> None:
    """From the last step: the checkpoint, the end of the ranks, and the start of the others."""
    moved = WorkersMoved(time=117.0, step=2, reason="the run was asked to continue with 1 of 2 workers")
    change = [committed(2), moved, Phase(time=118.0, name="data", process="rank 0"), ready(121.0, start_step=2)]
    three = {name: 1.5 * value for name, value in TWO_STEPS.items()}
    for finishes in ([Phase(time=114.0, name="finish", process="rank 0")], []):
        ledger = folded([*FIRST_START, *steps(1, 2, since=110), *finishes, *change, *steps(3, 3, since=121)])
        taken = {name: round(value, 6) for name, value in ledger.seconds.items() if value}
        assert taken == pytest.approx(three | {"startup": 10.0, "restart": 7.0})
        assert ledger.failure_seconds == {}


def test_a_run_that_is_stopped_or_killed_and_resumed_is_idle_in_between_and_restarts() -> None:
    begun = [*FIRST_START, *steps(1, 2, since=110)]
    stop = [Phase(time=115.0, name="finish", process="rank 0"), RunEnded(time=116.0, status="interrupted", step=2)]
    stopped = seconds_of([*begun, *stop, started(200.0), ready(209.0, start_step=2)])
    assert stopped == TWO_STEPS | {"startup": 10.0, "finish": 1.0, "other": 1.2, "idle": 84.0, "restart": 9.0}
    killed = seconds_of([*begun, started(200.0), ready(209.0, start_step=1)])
    one = {name: value / 2 for name, value in TWO_STEPS.items()}
    assert killed == one | {"startup": 10.0, "idle": 86.0, "restart": 9.0, "lost": 2.0}


def test_a_job_is_queued_from_its_submission_to_its_driver() -> None:
    assert seconds_of([replace(started(100.0), submitted=40.0), ready(110.0)]) == {"queue": 60.0, "startup": 10.0}
    for unknown in (0.0, 130.0):
        assert seconds_of([replace(started(100.0), submitted=unknown), ready(110.0)]) == {"startup": 10.0}
    stop = RunEnded(time=112.0, status="interrupted", step=0)
    again = replace(started(200.0), submitted=150.0)
    job = [replace(started(100.0), submitted=90.0), ready(112.0), stop, again, ready(210.0)]
    assert seconds_of(job) == {"queue": 10.0 + 50.0, "startup": 12.0, "idle": 38.0, "restart": 10.0}
    same = [replace(started(time), submitted=90.0) for time in (100.0, 150.0)]
    assert seconds_of([same[0], ready(110.0), same[1]]) == {"queue": 10.0, "startup": 10.0, "idle": 40.0}


def test_a_start_that_is_cut_off_is_start_up() -> None:
    killed = [started(100.0), Phase(time=103.0, name="imports"), started(110.0), ready(115.0)]
    assert seconds_of(killed) == {"startup": 8.0, "idle": 7.0}
    assert seconds_of([started(100.0), failed(105.0), ready(112.0)]) == {"startup": 5.0, "restart": 7.0}
    events = [*FIRST_START, failed(117.0, restarts=False), replace(DRIVER_FINISHES, time=118.0)]
    ended = seconds_of([*events, RunEnded(time=120.0, status="failed", step=0)])
    assert ended == {"startup": 10.0, "detection": 7.0, "finish": 3.0}


def test_work_that_restarts_repeat_is_lost_each_time_with_its_evaluations() -> None:
    attempt = [failed(120.0), ready(130.0), *steps(1, 2, since=130), failed(140.0), ready(150.0)]
    twice = seconds_of([*FIRST_START, *steps(1, 2, since=110), *attempt])
    assert twice == {"startup": 10.0, "detection": 6.0 + 6.0, "restart": 20.0, "lost": 8.0}
    after = [failed(125.0), ready(133.0, start_step=1)]
    once = seconds_of([*FIRST_START, *steps(1, 2, since=110), evaluated(118.0, at_step=2), *after])
    assert once["lost"] == 2.0 + 4.0
    assert "evaluation" not in once


def test_a_restart_without_its_event_is_known_by_the_workers_that_start_next_or_by_repeated_steps() -> None:
    begun = [*FIRST_START, *steps(1, 4, since=110)]
    old = [Notice(time=125.0, level="warning", message="restarting"), Phase(time=125.0, name="workers_start")]
    untyped = seconds_of([*begun, *old, ready(133.0, start_step=4)])
    assert (untyped["detection"], untyped["restart"]) == (7.0, 8.0)
    torn = seconds_of([*begun, failed(125.0), *steps(3, 3, since=133)])
    assert (torn["lost"], torn["restart"]) == (4.0, 8.0)


def test_a_forced_stop_loses_the_step_that_it_abandons() -> None:
    stop = [replace(DRIVER_FINISHES, time=119.0), RunEnded(time=120.0, status="interrupted", step=0)]
    assert seconds_of([*FIRST_START, *steps(1, 2, since=110), *stop]) == TWO_STEPS | {
        "startup": 10.0,
        "lost": 5.0,
        "finish": 1.0,
    }


def test_a_running_run_is_accounted_to_its_newest_event_and_late_ones_count_nothing_twice() -> None:
    events = [*FIRST_START, *steps(1, 2, since=110)]
    for count in range(1, len(events) + 1):
        assert folded(events[:count]).wall_seconds == pytest.approx(events[count - 1].time - 100)
    late = [replace(committed(1), time=111.0), Phase(time=111.0, name="cache", process="driver")]
    assert folded([*events[:-1], *late, events[-1]]).wall_seconds == pytest.approx(14.0)


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_in_an_older_log_a_clock_that_is_set_makes_no_time_negative_and_accounting_goes_on(jump: float) -> None:
    after = [replace(one, time=one.time + jump) for one in steps(3, 52, since=114)]
    taken = seconds_of([*FIRST_START, *steps(1, 2, since=110), *after])
    # The step that the clock was set in is not measured (back), or is and the jump is unexplained time of the loop (forward).
    assert taken["productive"] == pytest.approx(1.2 * (51 if jump < 0 else 52))
    assert sum(taken.values()) == pytest.approx(14 + 98 if jump < 0 else 14 + 100 + jump)


def on_machine(events: Sequence[Event], *, set_at: float, seconds: float) -> list[Event]:
    """Events with the uptime of one machine, whose clock is set once."""
    return [
        replace(one, time=one.time + (seconds if one.time > set_at else 0), uptime=one.time + 7000, boot="a")
        for one in events
    ]


@pytest.mark.parametrize("seconds", [-7200.0, 7200.0])
@pytest.mark.parametrize("set_at", [101.0, 112.0, 119.0, 128.0, 150.0])
def test_a_clock_that_is_set_changes_nothing_where_events_have_an_uptime(set_at: float, seconds: float) -> None:
    """While the run starts, trains, fails, restarts, or is stopped."""
    after = [failed(125.0), ready(133.0, start_step=2), *steps(3, 4, since=133), evaluated(141.0, at_step=4)]
    stop = [Phase(time=142.0, name="finish"), RunEnded(time=143.0, status="interrupted", step=4)]
    again = [replace(started(200.0), submitted=180.0), ready(210.0, start_step=4)]
    events = [*FIRST_START, *steps(1, 4, since=110), *after, *stop, *again]
    machine = [
        replace(one, submitted=one.submitted + seconds) if isinstance(one, RunStarted) and one.submitted else one
        for one in on_machine(events, set_at=set_at, seconds=seconds)
    ]
    assert seconds_of(machine) == seconds_of(events)
    assert seconds_of(machine)["queue"] == 20.0


def test_measured_parts_that_exceed_the_wall_time_share_it() -> None:
    """Two clocks that run at different speeds; the step has three quarters of the time that its parts claim."""
    parts = {"productive": 0.9, "data": 0.225, "communication": 0.15, "checkpoint": 0.15}
    assert seconds_of([*FIRST_START, step(1, 111.425)]) == {"startup": 10.0, **parts}


def test_communication_is_the_measured_wait_or_else_that_for_the_slowest_rank_within_the_backward_pass() -> None:
    def of_ranks(rank_0: float, rank_1: float) -> dict[str, float]:
        return seconds_of([*FIRST_START, replace(step(1, 112.0), rank_seconds=[rank_0, rank_1])])

    assert "communication" not in of_ranks(1.0, 0.8), "rank 0 is the slowest"
    assert of_ranks(1.0, 9.0)["communication"] == 0.8
    # Rank 0 is the slowest, and waits for the network; the wait is not part of the backward pass.
    waiting = replace(step(1, 112.0), backward_seconds=0.5, communication_seconds=0.3, rank_seconds=[1.0, 0.8])
    parts = {"productive": 1.1, "data": 0.3, "communication": 0.3, "checkpoint": 0.2, "other": 0.1}
    assert seconds_of([*FIRST_START, waiting]) == {"startup": 10.0, **parts}


def committed(at_step: int) -> CheckpointCommitted:
    return CheckpointCommitted(time=0.0, step=at_step, path="c", bytes=1, stall_seconds=0.2, write_seconds=9.0)


@pytest.mark.parametrize("back_to", [3000, 2000, 1000])
def test_a_restart_takes_back_exactly_what_followed_its_checkpoint(back_to: int) -> None:
    """Steps of different lengths: the later ones wait for data."""
    events: list[Event] = [*FIRST_START]
    for number in range(1, 4001):
        events.append(replace(step(number, 110 + 2 * number), data_seconds=0.3 if number <= back_to else 0.4))
        if number % 1000 == 7:
            events.append(committed(number - 7))
    taken = folded([*events, failed(8110), ready(8110, start_step=back_to)]).seconds
    assert taken["lost"] == pytest.approx(2 * (4000 - back_to))
    assert taken["data"] == pytest.approx(0.3 * back_to)


def test_a_restart_far_back_takes_its_share_of_older_steps_and_checkpoints() -> None:
    events: list[Event] = [*FIRST_START]
    for number in range(1, 1001):
        events += [step(number, 110 + 2 * number), committed(number)]
    assert folded([*events, failed(2110), ready(2110, start_step=100)]).seconds["lost"] == pytest.approx(1800)
    count = 30_000
    without = [*FIRST_START, *steps(1, count, since=110), failed(110 + 2 * count)]
    seconds = folded([*without, ready(110 + 2 * count, start_step=1000)]).seconds
    assert (seconds["lost"], seconds["productive"]) == pytest.approx((2 * (count - 1000), 1.2 * 1000))


@pytest.mark.extended
def test_memory_does_not_grow_with_the_steps() -> None:
    ledger = folded(FIRST_START)
    sizes = []
    tracemalloc.start()
    for number in range(1, 24_001):
        ledger.add(step(number, 110 + 2 * number))
        if number % 8_000 == 0:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] < 1.2 * sizes[0]


def test_the_sample_run_with_a_crash_and_a_stop_has_all_its_losses(tmp_path: Path) -> None:
    events = restarted_run()
    ledger = GoodputLedger.of_run(write_run(tmp_path, events))
    assert ledger.wall_seconds == pytest.approx(events[-1].time - events[0].time)
    lost = [event.seconds for event in events if isinstance(event, Step) and 101 <= event.step <= 131][:31]
    evaluated_once = 0.013
    assert ledger.seconds["lost"] == pytest.approx(sum(lost) + evaluated_once)
    assert (round(ledger.seconds["detection"], 6), round(ledger.seconds["idle"], 6)) == (0.9, 60.0)
