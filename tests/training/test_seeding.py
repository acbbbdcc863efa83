"""Seeds of a process and of a step, determinism, threads."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Never

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.seeding import configure_threads, generators_of, seed_everything, seed_step

steps = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**16), st.integers(0, 2**16))


@pytest.fixture(autouse=True)
def _global_settings_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    deterministic, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    threads = torch.get_num_threads()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = benchmark
    torch.set_num_threads(threads)


def draws() -> tuple[list[float], list[float], float]:
    """The next draws of the global generators of torch, numpy and Python."""
    return torch.rand(4).tolist(), np.random.rand(4).tolist(), random.random()


def dropout_mask() -> list[float]:
    return torch.nn.functional.dropout(torch.ones(256), 0.5).tolist()


def test_the_same_seed_gives_the_same_draws_of_every_generator_and_another_seed_others() -> None:
    seed_everything(7, deterministic=True)
    first = draws()
    seed_everything(7, deterministic=True)
    assert draws() == first
    seed_everything(2**63 - 1, deterministic=True)  # the largest of the settings
    assert all(left != right for left, right in zip(first, draws(), strict=True))


def test_determinism_is_set_in_torch_cudnn_and_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    for deterministic in (False, True):
        seed_everything(0, deterministic=deterministic)
        assert torch.are_deterministic_algorithms_enabled() == deterministic
        assert torch.backends.cudnn.benchmark != deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    seed_everything(0, deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@given(steps)
def test_the_same_step_has_the_same_dropout_mask_whatever_was_drawn_before(step: tuple[int, int, int, int]) -> None:
    seed_step(*step)
    mask, others = dropout_mask(), draws()
    torch.rand(17)
    seed_step(*step)
    assert (dropout_mask(), draws()) == (mask, others)


@given(steps, steps)
def test_another_step_has_another_mask(left: tuple[int, int, int, int], right: tuple[int, int, int, int]) -> None:
    seed_step(*left)
    mask = dropout_mask()
    seed_step(*right)
    assert (dropout_mask() == mask) == (left == right)


def test_neighbours_in_seed_step_micro_batch_and_rank_share_no_stream() -> None:
    """A sum or a product of the four repeats itself here."""
    places = [
        (seed, step, micro, rank) for seed in range(4) for step in range(8) for micro in range(4) for rank in range(4)
    ]
    masks = set()
    for place in places:
        seed_step(*place)
        masks.add(tuple(dropout_mask()))
    assert len(masks) == len(places)


OF_THE_MODULE = {"here": np.random.default_rng(0)}


class Keeper:
    """Has generators in the places where user code has them."""

    __slots__ = ("__dict__", "slot")
    shared = random.Random(0)

    def __init__(self) -> None:
        self.slot = torch.Generator()
        own = np.random.default_rng(1)
        self.closure: Callable[[], float] = lambda: float(own.random())
        self.bound: Callable[[], float] = np.random.default_rng(2).normal
        self.deep = {"a": [{"b": [{"c": np.random.RandomState(3)}]}]}
        self.many = [np.random.default_rng(seed) for seed in range(200)]

    def defaults(self, generator: torch.Generator = torch.Generator()) -> float:  # noqa: B008
        return float(torch.rand((), generator=generator))


def test_generators_of_user_code_are_found_where_it_keeps_them_and_draw_streams_of_their_own() -> None:
    keeper = Keeper()
    found = generators_of(keeper)
    expected = [OF_THE_MODULE["here"], Keeper.shared, keeper.slot, *keeper.many, keeper.deep["a"][0]["b"][0]["c"]]
    assert {id(one) for one in expected} <= {id(one) for one in found.values()}

    def drawn() -> list[float]:
        seed_step(1, 2, 3, 4, own=found)
        others = float(torch.rand((), generator=keeper.slot)), Keeper.shared.random(), float(keeper.bound())
        return [*others, keeper.closure(), keeper.defaults(), float(torch.rand(())), random.random()]

    first = drawn()
    assert drawn() == first
    assert len(set(first)) == len(first)


class Loading(dict[str, object]):
    """A mapping that loads its values when it is asked for them, as those of Transformers do, and computes its attributes."""

    def values(self) -> Never:
        raise AssertionError("it was asked")

    def __getattr__(self, name: str) -> Never:
        raise AssertionError(name)


LOADING = Loading()


def test_the_search_for_generators_runs_no_code_of_what_it_looks_at() -> None:
    generator = torch.Generator()
    assert generator in generators_of({"one": Loading(kept=[generator])}).values()


def test_operations_get_the_threads_that_were_configured() -> None:
    configure_threads(1)
    assert torch.get_num_threads() == 1
    configure_threads(2)
    assert torch.get_num_threads() == 2
