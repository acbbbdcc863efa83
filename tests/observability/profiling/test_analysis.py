"""Profiles with known times: the numbers and the verdict are exact, and damaged parts are named."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.profiling.analysis import analyse, kept_analysis
from observability.profiling.intervals import Span, difference, intersection, length, union
from observability.profiling.text import describe
from observability.profiling.verdict import RunFigures
from observability.profiling.window import ProfileError, ProfileFolder
from tests.observability.profiling.traces import Rank, event, write_profile, write_trace

NOTHING_KNOWN = RunFigures()


def gpu_rank(*, late: float = 0.0) -> Rank:
    """A step of 100 ms: 50 ms of kernels, and an all-reduce of 40 ms from 30 ms on; a late rank comes later to it."""
    return Rank(
        steps=[(0, 0, 100)],
        events=[
            event("aten::conv2d", "cpu_op", 0, 5, thread="main"),
            event("sgemm", "kernel", 0, 30),
            event("relu", "kernel", 20, 50),
            event("ncclDevKernel_AllReduce_Sum_f32", "kernel", 30 + late, 70, thread="9"),
            event("Memcpy HtoD", "gpu_memcpy", 70, 75, thread="11"),
        ],
    )


def test_communication_that_overlaps_with_kernels_is_hidden_and_the_rest_is_exposed(tmp_path: Path) -> None:
    (rank, _) = analyse(write_profile(tmp_path, [gpu_rank(), gpu_rank()]), NOTHING_KNOWN).ranks
    assert rank.on_gpu
    assert (rank.step, rank.compute, rank.communication) == pytest.approx((0.1, 0.05, 0.04), abs=1e-6)
    assert (rank.transfer, rank.waiting, rank.overhead) == pytest.approx((0.02, 0, 0.03), abs=1e-6)
    assert rank.idle == pytest.approx(0.025, abs=1e-6)


def test_the_rank_that_comes_last_to_a_collective_makes_the_others_wait(tmp_path: Path) -> None:
    found = analyse(write_profile(tmp_path, [gpu_rank(), gpu_rank(late=30)]), NOTHING_KNOWN)
    first, second = found.ranks
    assert (first.transfer, first.waiting) == pytest.approx((0, 0.02), abs=1e-6)  # of its 30 ms the kernels hide 10
    assert (second.transfer, second.waiting) == pytest.approx((0.01, 0), abs=1e-6)
    assert (found.verdict.limit, found.verdict.slow_rank) == ("straggler", 1)
    assert "rank 1 on node-1 holds up the others, who wait for it up to 20.0 % of each step" in found.verdict.sentence


def test_clocks_that_differ_by_an_hour_change_nothing(tmp_path: Path) -> None:
    alike = analyse(write_profile(tmp_path / "a", [gpu_rank(), gpu_rank(late=30)]), NOTHING_KNOWN)
    skewed = replace(gpu_rank(late=30), base=gpu_rank().base + 3600)
    found = analyse(write_profile(tmp_path / "b", [gpu_rank(), skewed]), NOTHING_KNOWN)
    assert found.verdict == alike.verdict
    for one, other in zip(found.ranks, alike.ranks, strict=True):
        assert (one.step, one.compute, one.waiting) == pytest.approx(
            (other.step, other.compute, other.waiting), abs=1e-5
        )


def test_a_rank_s_wait_for_data_counts_only_while_the_gpu_has_nothing_to_do(tmp_path: Path) -> None:
    rank = Rank(
        steps=[(0, 80, 100)], data=80, events=[event("sgemm", "kernel", 0, 20), event("sgemm", "kernel", 80, 100)]
    )
    found = analyse(write_profile(tmp_path, [rank]), NOTHING_KNOWN)
    assert found.ranks[0].data == pytest.approx(0.06, abs=1e-6)
    assert found.verdict.limit == "data"
    assert "data.loader_workers=2" in found.verdict.advice


def test_operators_of_a_loader_in_the_rank_are_data_and_not_computation(tmp_path: Path) -> None:
    operators = [event("aten::stack", "cpu_op", 5, 60), event("aten::conv2d", "cpu_op", 60, 90)]
    rank = Rank(steps=[(0, 60, 100)], data=55, events=operators)
    (found,) = analyse(write_profile(tmp_path, [rank]), NOTHING_KNOWN).ranks
    assert (found.data, found.compute) == pytest.approx((0.055, 0.03), abs=1e-6)
    assert [one.name for one in found.top] == ["aten::conv2d"]


def test_a_hook_of_the_backward_pass_that_waits_for_a_collective_does_not_compute_meanwhile(tmp_path: Path) -> None:
    events = [
        event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", 0, 90),
        event("AddmmBackward0", "cpu_op", 0, 30),
        event("gloo:all_reduce", "user_annotation", 30, 80, thread="9"),
    ]
    (found,) = analyse(write_profile(tmp_path, [Rank(steps=[(0, 0, 100)], events=events)]), NOTHING_KNOWN).ranks
    assert (found.compute, found.transfer) == pytest.approx((0.03, 0.05), abs=1e-6)


def test_thousands_of_tiny_operators_are_the_host_s_work(tmp_path: Path) -> None:
    tiny = [event("aten::add", "cpu_op", at / 50, at / 50 + 0.005) for at in range(5000)]
    found = analyse(write_profile(tmp_path, [Rank(steps=[(0, 0, 100)], events=tiny)]), NOTHING_KNOWN)
    assert found.verdict.limit == "host"
    assert found.ranks[0].dispatch == pytest.approx(0.025, abs=1e-6)
    assert "5,000 operators a step" in describe(found, run="run")


def test_a_gpu_that_waits_for_launches_is_host_bound_and_for_python_too(tmp_path: Path) -> None:
    for launching, advice in ((9.0, "do more per operator"), (1.0, "look for Python")):
        events = [event("relu", "kernel", at + 9, at + 10) for at in range(0, 100, 10)]
        events += [event("aten::relu", "cpu_op", at, at + launching, thread="main") for at in range(0, 100, 10)]
        rank = Rank(steps=[(0, 0, 100)], events=events)
        found = analyse(write_profile(tmp_path / advice, [rank]), NOTHING_KNOWN)
        assert found.verdict.limit == "host"
        assert found.ranks[0].overhead == pytest.approx(0.09, abs=1e-6)
        assert found.verdict.advice.startswith(advice)


def test_an_operator_s_own_time_does_not_hold_that_of_the_operators_within_it(tmp_path: Path) -> None:
    nested = [event("outer", "cpu_op", 0, 90), event("inner", "cpu_op", 10, 70), event("inner", "cpu_op", 70, 80)]
    (found,) = analyse(write_profile(tmp_path, [Rank(steps=[(0, 0, 100)], events=nested)]), NOTHING_KNOWN).ranks
    assert [(one.name, one.count, round(one.seconds, 6)) for one in found.top] == [
        ("inner", 2, 0.07),
        ("outer", 1, 0.02),
    ]
    assert found.compute == pytest.approx(0.09, abs=1e-6)


def test_checkpoints_of_the_whole_run_count_although_no_profiled_step_has_one(tmp_path: Path) -> None:
    folder = write_profile(tmp_path, [gpu_rank(), gpu_rank()])
    found = analyse(folder, RunFigures(checkpoint_share=0.6, checkpoint_every=5))
    assert found.verdict.limit == "checkpoint"
    assert found.verdict.sentence.startswith("checkpoint-bound: 60.0 % of a step")
    assert "checkpoint.every_steps=5" in found.verdict.advice


def test_a_rank_whose_profile_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write_profile(tmp_path, [gpu_rank(), gpu_rank()])
    found = analyse(folder, NOTHING_KNOWN)
    assert kept_analysis(tmp_path) == found
    trace, base = folder.trace(1), gpu_rank().base
    whole = trace.read_bytes()
    text = gzip.decompress(whole)
    for damaged, reason in {
        whole[: len(whole) // 2]: "truncated or damaged",  # a rank was killed while it wrote
        gzip.compress(text[: len(text) // 2]): "truncated: its events do not end",
        gzip.compress(b'{"traceEvents": [' + b"}" * 10): "truncated: its events do not end",
    }.items():
        trace.write_bytes(damaged)
        assert_left_out(folder, reason)
    write_trace(trace, gpu_rank().events, base=base + 3600)
    assert_left_out(folder, "the clock of its machine was set")
    folder.steps_file(1).unlink()  # a rank died before it wrote anything
    assert_left_out(folder, "rank1.steps.json does not exist")
    folder.trace(0).unlink()
    with pytest.raises(ProfileError, match=r"rank 0 is left out: .*rank0\.json\.gz does not exist"):
        analyse(folder, NOTHING_KNOWN)


def assert_left_out(folder: ProfileFolder, reason: str) -> None:
    """Rank 1 is not in the analysis, for this reason."""
    found = analyse(folder, NOTHING_KNOWN)
    assert [rank.rank for rank in found.ranks] == [0]
    (problem,) = found.problems
    assert problem.startswith("rank 1 is left out: ")
    assert reason in problem


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def points(spans: Sequence[tuple[float, float]]) -> set[int]:
    """The whole numbers n of which [n, n + 1) is within an interval."""
    return {point for start, end in spans for point in range(round(start), round(end))}


def assert_is_canonical(spans: Sequence[Span]) -> None:
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


@given(SPANS)
def test_a_union_has_the_points_of_its_intervals_once(spans: list[Span]) -> None:
    found = union(spans)
    assert_is_canonical(found)
    assert points(found) == points(spans)
    assert length(found) == len(points(spans))


@given(SPANS, SPANS)
def test_intersection_and_difference_split_a_set(first: list[Span], second: list[Span]) -> None:
    one, other = union(first), union(second)
    both, left = intersection(one, other), difference(one, other)
    assert_is_canonical(both)
    assert_is_canonical(left)
    assert points(both) == points(first) & points(second)
    assert points(left) == points(first) - points(second)
