"""The state of a run with and without restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.history import PARTS, RunHistory, part_seconds, state_of
from observability.runlog import (
    CheckpointUploaded,
    Evaluated,
    FlopsCounted,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
)
from tests.observability.sample_run import START, SampleRun, finished_run, restarted_run


def test_a_finished_run_has_the_state_of_its_events() -> None:
    history = RunHistory.from_events(finished_run())
    assert history.ended is not None
    assert (history.ended.status, history.last_step, history.epochs) == ("done", 230, 10)
    assert history.restarts == []
    assert (history.setting("loop.global_batch"), history.setting("loop.batches.size")) == (64, None)


def test_wall_time_reaches_to_now_and_leaves_out_pauses_and_evaluations_of_lost_steps_are_removed() -> None:
    events = restarted_run()
    history = RunHistory.from_events(events)
    assert history.seconds() == pytest.approx(events[-1].time - START - 60)
    assert [evaluation.epoch for evaluation in history.evaluations_of("validation")] == list(range(1, 11))
    assert RunHistory.from_events(SampleRun().start().train(1, 5).events).seconds(now=START + 100) == 100
    restored = RunHistory.from_events(SampleRun().start().train(1, 50).train(47, 48).events)
    assert [evaluation.step for evaluation in restored.evaluations] == [23, 46]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6))
def test_after_any_restarts_each_remaining_step_is_there_once(jumps: list[tuple[int, int]]) -> None:
    run, last, taken = SampleRun(steps=400).start(), 0, 0
    for back, forward in jumps:
        first = max(1, last - back + 1)
        last = first + forward - 1
        taken += forward
        run.train(first, last)
    history = RunHistory.from_events(run.events)
    assert [step.step for step in history.steps] == list(range(1, last + 1))
    assert history.lost_steps == taken - last
    assert len(history.restarts) == len(jumps) - 1


def test_the_workers_of_an_elastic_run_are_those_that_train_now() -> None:
    started, trains = SampleRun().start().events[0], SampleRun().train(1, 1).events
    assert isinstance(started, RunStarted)
    assert RunHistory.from_events([started]).workers_text() == "2 workers"
    scale = {**started.settings["scale"], "workers": 4, "min_workers": 1}
    fixed = replace(started, settings={**started.settings, "scale": {**scale, "min_workers": 4}})
    assert RunHistory.from_events([fixed, *trains]).workers_text() == "4 workers"
    elastic = replace(started, settings={**started.settings, "scale": scale})
    assert RunHistory.from_events([elastic]).workers_text("GPU worker") == "1-4 GPU workers"
    assert RunHistory.from_events([elastic, *trains]).workers_text() == "2 of 1-4 workers"


def test_uploads_are_ordered_by_step_and_those_of_lost_steps_are_removed() -> None:
    events = restarted_run()
    last_start = max(index for index, event in enumerate(events) if isinstance(event, TrainingStarted))
    restored = RunHistory.from_events(events).training_starts[-1].start_step
    uploads = [
        CheckpointUploaded(step=step, location="s3://b/run", bytes=1, seconds=0.1) for step in (restored, 1, 999)
    ]
    history = RunHistory.from_events([*events[:last_start], *uploads, *events[last_start:]])
    assert [upload.step for upload in history.uploads] == [1, restored]


def test_evaluations_are_ordered_by_step_and_of_equally_good_ones_the_earliest_is_the_best() -> None:
    events = SampleRun().start().train(1, 50).events
    first, second = (replace(event, metrics={"accuracy": 0.9}) for event in events if isinstance(event, Evaluated))
    others = [event for event in events if not isinstance(event, Evaluated)]
    late = replace(first, is_asynchronous=True)
    history = RunHistory.from_events([*others, second, late])
    assert history.evaluations == [late, second]
    assert history.best_validation() == late


def test_a_resumed_run_is_running_again() -> None:
    run = SampleRun().start().train(1, 50).interrupt(50)
    assert state_of(RunHistory.from_events(run.events).ended, is_running=False) == "interrupted"
    resumed = RunHistory.from_events(run.start().events).ended
    assert state_of(resumed, is_running=True) == "running"
    assert state_of(resumed, is_running=False) == "killed"


def test_throughput_and_flops_are_those_of_the_newest_steps_and_mfu_is_their_share_of_the_peak() -> None:
    steps = [event for event in finished_run() if isinstance(event, Step)]
    newest = steps[-10:]
    throughput = sum(step.samples for step in newest) / sum(step.seconds for step in newest)
    known = RunHistory.from_events([FlopsCounted(per_sample=2e9, device="NVIDIA A10G", peak=140e12), *steps])
    rates = [known.throughput(newest=10), known.flops_per_second(newest=10), known.mfu(newest=10)]
    assert rates == pytest.approx([throughput, 2e9 * throughput, 2e9 * throughput / 140e12])
    unknown = RunHistory.from_events([FlopsCounted(per_sample=2e9, device="CPU"), *steps])
    assert (unknown.mfu(), RunHistory.from_events(steps).flops_per_second()) == (None, None)
    assert len(part_seconds(steps[0])) == len(PARTS)
    assert sum(part_seconds(steps[0])) == pytest.approx(steps[0].seconds)


def test_a_run_without_steps_has_no_results() -> None:
    history = RunHistory.from_events(
        [RunStarted(run="a", settings={}, environment={}), RunEnded(status="failed", step=0)]
    )
    assert history.last_step == 0
    assert history.throughput() == 0
    assert history.best_validation() is None
    assert RunHistory().seconds() == 0
    assert history.test_evaluation() is None
