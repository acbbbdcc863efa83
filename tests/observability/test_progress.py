"""The progress view in a pipe and on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from observability.progress import ProgressView
from observability.runlog import Event, FlopsCounted, Notice, Phase, RunEnded, RunStarted
from tests.observability.sample_run import SampleRun, finished_run, restarted_run

FINISHED = """\
run simple_cnn-digits-20260921-141320: simple_cnn on digits, 2 CPU workers (ray), global batch 64
[   0.0 s] starting Ray
[   2.9 s] starting workers
[   4.0 s] loading Python packages
[   5.6 s] connecting the ranks
[   5.7 s] preparing data
[   6.1 s] building the model
training steps 1 to 69 (3 epochs of 1,437 samples) on 2 ranks, 28,938 parameters
metrics: http://127.0.0.1:40123/metrics
step  1/69  epoch 1/3  loss 2.0536  accuracy 13.7 %  664 samples/s  0:07 left
epoch 1/3  validation  loss 0.2220  accuracy 94.0 %  (180 samples in 13 ms)
epoch 2/3  validation  loss 0.0992  accuracy 97.3 %  (180 samples in 13 ms)
epoch 3/3  validation  loss 0.0906  accuracy 97.6 %  (180 samples in 13 ms)
step 69/69  epoch 3/3  loss 0.0406  accuracy 98.3 %  3,720 samples/s
[   7.4 s] saving the result
epoch 3/3  test        loss 0.0906  accuracy 97.6 %  (180 samples in 13 ms)
done after 7.4 s: 69 steps, 3,524 samples/s, best validation accuracy 97.6 % in epoch 3, test accuracy 97.6 %
"""


def plain(events: Sequence[Event]) -> str:
    """The output in a pipe."""
    stream = io.StringIO()
    view = ProgressView(stream, is_terminal=False)
    for event in events:
        view.handle(event)
        view.tick()
    view.close()
    return stream.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 100 columns that records its output."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("observability.screens._REFRESH_SECONDS", 0.0)
    return io.StringIO()


def visible(text: str) -> str:
    """The text without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_pipe_gets_a_line_for_each_event_and_steps_two_seconds_apart() -> None:
    assert plain(SampleRun(steps=69).start().train(1, 69).finish().events) == FINISHED
    # 0.017 s per step and 0.013 s per evaluation make 3.95 s of training: the first step, one in between and the last.
    first, *events = finished_run()
    lines = plain([first, FlopsCounted(per_sample=2e9, device="CPU"), *events]).splitlines()
    shown = [line.split("/")[0].split()[-1] for line in lines if line.startswith("step")]
    assert shown == ["1", "118", "230"]
    assert re.search(r" samples/s, 7\.\d\d TFLOP/s, best validation ", lines[-1])


def test_a_restart_names_the_step_it_resumes_from_and_pauses_do_not_count_as_time() -> None:
    text = plain(restarted_run())
    assert "warning: rank 1 failed: killed by signal 9; restarting" in text
    assert "resuming from step 100: checkpoints/step-00000100\ntraining steps 101 to 230" in text
    assert re.search(r"^step 171/230 .*  0:06 left$", text, re.MULTILINE)


def test_a_finished_run_has_nothing_left_to_train() -> None:
    text = plain(SampleRun(steps=69).start().train(70, 69).finish().events)
    assert "\nnothing left to train: all 69 steps (3 epochs of 1,437 samples) are done\n" in text
    assert "training steps" not in text
    assert "samples/s" not in text, "of no step"


def test_a_run_that_ends_early_says_after_how_many_steps() -> None:
    lines = plain(SampleRun().start().train(1, 40).interrupt(40).events).splitlines()
    assert lines[-2].startswith("step  40/230")
    assert lines[-1].startswith("interrupted after 6.9 s: 40 steps")
    events = SampleRun().start().events
    ended = RunEnded(time=events[-1].time + 1, status="failed", step=0, message="no such file")
    assert plain([*events, ended]).splitlines()[-1].startswith("failed after 3.9 s: 0 steps")


def test_what_is_unknown_of_a_run_is_left_out() -> None:
    settings = {"scale": {"workers": 1, "gpu": True, "launcher": "ray"}}
    assert ", 1 GPU worker (ray), " in plain([RunStarted(run="a", settings=settings, environment={})])
    assert plain([RunStarted(run="a", settings={}, environment={})]).startswith("run a: ")
    assert plain([Phase(time=5.0, name="warm_up")]) == "[   0.0 s] warm up\n"
    assert "training steps 1 to 23 (1 epoch of 1,437 samples)" in plain(SampleRun(steps=23).start().train(1, 23).events)


def test_a_checkpoint_that_fails_verification_causes_a_warning() -> None:
    events = SampleRun().start().train(51, 51).events
    restored = next(index for index, event in enumerate(events) if event.kind == "restored")
    events[restored] = replace(events[restored], skipped=["step 100: weights.safetensors is truncated"])  # type: ignore[call-arg]
    assert "\nwarning: checkpoint failed verification: step 100: weights.safetensors is truncated\n" in plain(events)


def test_each_line_reaches_a_pipe_at_once() -> None:
    pipe = io.BytesIO()
    stream = io.TextIOWrapper(pipe)
    ProgressView(stream, is_terminal=False).say("preparing data")
    assert pipe.getvalue() == b"preparing data\n"


def test_a_terminal_shows_the_current_phase(terminal: io.StringIO) -> None:
    ProgressView(terminal, is_terminal=True).handle(Phase(name="ray_start"))
    assert re.fullmatch(r"\r… starting Ray  \d+\.\d s", visible(terminal.getvalue()))


def test_a_terminal_shows_finished_phases_a_bar_with_the_newest_step_and_notices_above_it(
    terminal: io.StringIO,
) -> None:
    view = ProgressView(terminal, is_terminal=True)
    for event in SampleRun().start().train(1, 115).events:
        view.handle(event)
    view.tick()
    shown = visible(terminal.getvalue())
    assert "✓ starting Ray  2.9 s\n" in shown
    bar = r"━ 115/230 epoch 5/10  loss 0\.\d{4}  accuracy 9\d\.\d %  3,\d{3} samples/s  0:02 left"
    assert re.search(bar, shown.splitlines()[-1])
    view.handle(Notice(level="error", message="disk is full"))
    text = visible(terminal.getvalue())
    assert text.index("error: disk is full") < text.rindex("115/230")
    assert terminal.getvalue().count("\x1b[31m") == 1, "only the notice is red"
    for event in SampleRun().start().train(116, 230).finish().events[-3:]:
        view.handle(event)
    view.close()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l"), "the cursor is visible"
    assert visible(terminal.getvalue()).splitlines()[-1].startswith("done after")
