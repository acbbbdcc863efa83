"""The progress view in a pipe and on a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
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


def test_a_pipe_gets_a_line_for_each_event() -> None:
    assert plain(SampleRun(steps=69).start().train(1, 69).finish().events) == FINISHED


def test_steps_on_a_pipe_are_two_seconds_apart() -> None:
    # 0.017 s per step and 0.013 s per evaluation make 3.95 s of training: the first step, one in between and the last.
    shown = [line for line in plain(finished_run()).splitlines() if line.startswith("step")]
    assert [re.match(r"step +(\d+)/230", line)[1] for line in shown if line] == ["1", "118", "230"]  # type: ignore[index]


def test_the_last_line_has_the_flops_of_the_run() -> None:
    first, *events = finished_run()
    last = plain([first, FlopsCounted(per_sample=2e9, device="CPU"), *events]).splitlines()[-1]
    assert re.search(r" samples/s, 7\.\d\d TFLOP/s, best validation ", last)


def test_a_restart_names_the_step_it_resumes_from() -> None:
    text = plain(restarted_run())
    assert "warning: rank 1 failed: killed by signal 9; restarting" in text
    assert "resuming from step 100: checkpoints/step-00000100\ntraining steps 101 to 230" in text


def test_a_finished_run_has_nothing_left_to_train() -> None:
    text = plain(SampleRun(steps=69).start().train(70, 69).finish().events)
    assert "\nnothing left to train: all 69 steps (3 epochs of 1,437 samples) are done\n" in text
    assert "training steps" not in text
    assert "samples/s" not in text, "of no step"


def test_one_epoch_is_singular() -> None:
    assert "training steps 1 to 23 (1 epoch of 1,437 samples)" in plain(SampleRun(steps=23).start().train(1, 23).events)


def test_the_time_left_ignores_the_pause_before_a_resume() -> None:
    lines = plain(restarted_run()).splitlines()
    first_after_resume = next(line for line in lines if line.startswith("step 171/230"))
    assert first_after_resume.endswith("0:06 left")


def test_the_last_step_before_an_interruption_is_shown() -> None:
    lines = plain(SampleRun().start().train(1, 40).interrupt(40).events).splitlines()
    assert lines[-2].startswith("step  40/230")
    assert lines[-1].startswith("interrupted after 6.9 s: 40 steps")


def test_a_run_that_fails_before_training_ends_with_a_failure_line() -> None:
    events = SampleRun().start().events
    ended = RunEnded(time=events[-1].time + 1, status="failed", step=0, message="no such file")
    assert plain([*events, ended]).splitlines()[-1].startswith("failed after 3.9 s: 0 steps")


def test_a_checkpoint_that_fails_verification_causes_a_warning() -> None:
    events = SampleRun().start().train(51, 51).events
    restored = next(index for index, event in enumerate(events) if event.kind == "restored")
    events[restored] = replace(events[restored], skipped=["step 100: weights.safetensors is truncated"])  # type: ignore[call-arg]
    assert "\nwarning: checkpoint failed verification: step 100: weights.safetensors is truncated\n" in plain(events)


def test_an_unknown_phase_is_shown_by_its_name() -> None:
    assert plain([Phase(time=5.0, name="warm_up")]) == "[   0.0 s] warm up\n"


def test_say_writes_a_line() -> None:
    stream = io.StringIO()
    ProgressView(stream, is_terminal=False).say("one worker, since this machine has one CPU")
    assert stream.getvalue() == "one worker, since this machine has one CPU\n"


def test_each_line_reaches_a_pipe_at_once() -> None:
    pipe = io.BytesIO()
    stream = io.TextIOWrapper(pipe)
    ProgressView(stream, is_terminal=False).say("preparing data")
    assert pipe.getvalue() == b"preparing data\n"


def test_a_terminal_shows_the_current_phase(terminal: io.StringIO) -> None:
    ProgressView(terminal, is_terminal=True).handle(Phase(name="ray_start"))
    assert re.fullmatch(r"\r… starting Ray  \d+\.\d s", visible(terminal.getvalue()))


def test_a_terminal_keeps_each_finished_phase_with_its_duration(terminal: io.StringIO) -> None:
    view = ProgressView(terminal, is_terminal=True)
    for event in SampleRun().start().train(1, 1).events:
        view.handle(event)
    assert "✓ starting Ray  2.9 s\n" in visible(terminal.getvalue())


def test_a_terminal_shows_a_bar_with_the_newest_step(terminal: io.StringIO) -> None:
    view = ProgressView(terminal, is_terminal=True)
    for event in SampleRun().start().train(1, 115).events:
        view.handle(event)
    view.tick()
    last = visible(terminal.getvalue()).splitlines()[-1]
    assert re.search(r"━ 115/230 epoch 5/10  loss 0\.\d{4}  accuracy 9\d\.\d %  3,\d{3} samples/s  0:02 left", last)


def test_a_terminal_writes_notices_above_the_bar(terminal: io.StringIO) -> None:
    view = ProgressView(terminal, is_terminal=True)
    for event in SampleRun().start().train(1, 20).events:
        view.handle(event)
    view.tick()
    view.handle(Notice(level="error", message="disk is full"))
    text = visible(terminal.getvalue())
    assert text.index("error: disk is full") < text.rindex("20/230")
    assert terminal.getvalue().count("\x1b[31m") == 1, "only the notice is red"


def test_the_cursor_is_visible_again_after_the_run(terminal: io.StringIO) -> None:
    view = ProgressView(terminal, is_terminal=True)
    for event in finished_run():
        view.handle(event)
        view.tick()
    view.close()
    text = terminal.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert visible(text).splitlines()[-1].startswith("done after")


def test_the_first_lines_on_a_terminal_do_not_import_rich() -> None:
    program = """
import io, sys
from observability.progress import ProgressView
from observability.runlog import Phase
stream = io.StringIO()
ProgressView(stream, is_terminal=True).handle(Phase(name="ray_start"))
assert "starting Ray" in stream.getvalue()
assert "rich" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_headline_names_the_device_of_the_workers() -> None:
    settings = {"scale": {"workers": 1, "gpu": True, "launcher": "ray"}}
    assert ", 1 GPU worker (ray), " in plain([RunStarted(run="a", settings=settings, environment={})])


def test_a_run_without_settings_is_shown() -> None:
    assert plain([RunStarted(run="a", settings={}, environment={})]).startswith("run a: ")
