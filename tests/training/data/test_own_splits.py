"""Splits of a user's own: what they may draw from and return, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.training.data.ids import IdSplit
from training.data.loader import EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.own_draws import check_own_draws
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError, SettingsError


class DrawingSplit(IdSplit):
    """Its inputs are random numbers of all three libraries, as those of a user's own augmentation may be."""

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        _, targets = super().read(ids, uniforms)
        drawn = [(float(torch.rand(())), float(np.random.random()), random.random()) for _ in ids]
        return torch.tensor(drawn), targets


def test_a_dataset_draws_numbers_of_the_seed_the_epoch_and_the_place() -> None:
    def drawn(*, seed: int = 1, rank: int = 0, epoch: int = 0, start: int = 0, loader_workers: int = 0) -> list[Tensor]:
        plan = BatchPlan(size=24, global_batch=8, world=2, accumulation=1)
        loader = TrainLoader(DrawingSplit(24), plan=plan, seed=seed, rank=rank, loader_workers=loader_workers)
        return [batch.inputs for step in loader.epoch(epoch, start) for batch in step]

    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    first = drawn()
    assert torch.equal(torch.rand(()), expected), "the model's own numbers do not depend on the dataset's"
    assert all(map(torch.equal, first, drawn(loader_workers=1)))
    assert all(map(torch.equal, first[1:], drawn(start=1))), "a resumed run"
    others = (first, drawn(rank=1), drawn(seed=2), drawn(epoch=1))
    seen = [number for batches in others for number in torch.cat(batches).flatten().tolist()]
    assert len(set(seen)) == len(seen)


class Wrong(IdSplit):
    """Reads something else than it promises."""

    def __init__(self, size: int, kind: str) -> None:
        super().__init__(size)
        self.kind = kind

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        inputs, targets = super().read(ids, uniforms)
        results: dict[str, object] = {
            "three": (inputs, targets, targets),
            "numpy": (inputs.numpy(), targets.numpy()),
            "fewer": (inputs[1:], targets[1:]),
            "one target": (inputs, targets[:1]),
            "scalar": (inputs, targets.sum()),
        }
        if self.kind == "iterator":
            return cast("tuple[Tensor, Tensor]", next(iter(())))
        return cast("tuple[Tensor, Tensor]", results[self.kind])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("three", r"returned \['Tensor', 'Tensor', 'Tensor'\]"),
        ("numpy", r"returned \['ndarray', 'ndarray'\]"),
        ("fewer", r"read of 8 samples returned inputs of shape \(7,"),
        ("one target", r"returned targets of shape \(1,"),
        ("scalar", r"returned targets of shape \(\)"),
        ("iterator", "raised StopIteration"),
    ],
)
def test_a_split_that_reads_other_than_it_is_asked_is_refused(kind: str, said: str) -> None:
    plan = BatchPlan(size=24, global_batch=8, world=1)
    with pytest.raises(DataError, match=said):
        next(TrainLoader(Wrong(24, kind), plan=plan, seed=1, rank=0).epoch(0))
    with pytest.raises(DataError):
        next(iter(EvalLoader(Wrong(24, kind), batch=8, rank=0, world=1)))


def test_targets_are_checked_in_every_batch() -> None:
    def refuse(targets: Tensor) -> None:
        if targets.max() >= 16:
            raise SettingsError("sample 1 has the class 17", remedy="")

    loader = EvalLoader(IdSplit(24), batch=8, rank=0, world=1, check=refuse)
    with pytest.raises(SettingsError, match="begins with sample 16 of its split"):
        list(loader)


OF_THE_MODULE = np.random.default_rng(0)


class OwnGenerators(DrawingSplit):
    """Draws from generators that it has made itself, and from one of its module."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.parts = {"numpy": [np.random.default_rng(0)]}
        self.legacy, self.torch, self.python = np.random.RandomState(0), torch.Generator(), random.Random(0)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        assert uniforms is None
        [generator] = self.parts["numpy"]
        by_torch = float(torch.rand((), generator=self.torch))
        drawn = [
            generator.random(),
            self.legacy.random_sample(),
            by_torch,
            self.python.random(),
            OF_THE_MODULE.random(),
        ]
        return torch.tensor([drawn] * len(ids)), torch.zeros(len(ids))


def test_generators_of_a_dataset_s_own_draw_numbers_of_the_place_too() -> None:
    plan = BatchPlan(size=24, global_batch=8, world=1)

    def drawn(start: int = 0, loader_workers: int = 0, seed: int = 1) -> list[Tensor]:
        loader = TrainLoader(OwnGenerators(24), plan=plan, seed=seed, rank=0, loader_workers=loader_workers)
        return [batch.inputs[0] for step in loader.epoch(0, start) for batch in step]

    first = drawn()
    assert all(map(torch.equal, first, drawn(loader_workers=2)))
    assert all(map(torch.equal, first[1:], drawn(start=1)))
    seen = torch.stack([*first, *drawn(seed=2)])
    assert all(len(set(column)) == len(column) for column in seen.T.tolist())


LATER: dict[int, random.Random] = {}


class LateGenerators(DrawingSplit):
    """Makes its generators as it reads: one, one for each sample, in nested objects, or those of its module."""

    def __init__(self, size: int, kind: str) -> None:
        super().__init__(size)
        self.kind, self.one, self.inner = kind, None, None
        self.by_sample: dict[int, np.random.Generator] = {}
        self.by_name: dict[str, object] = {}
        LATER.clear()

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        assert uniforms is None
        return torch.tensor([self.drawn(int(one)) for one in ids]), torch.from_numpy(ids)

    def drawn(self, sample: int) -> float:
        if self.kind == "one":
            self.one = self.one or np.random.default_rng(3)  # type: ignore[assignment]
            return float(self.one.random())  # type: ignore[attr-defined]
        if self.kind == "sample":
            return float(self.by_sample.setdefault(sample, np.random.default_rng(sample)).random())
        if self.kind == "nested":
            self.inner = self.inner or LateGenerators(1, "sample")  # type: ignore[assignment]
            return self.inner.drawn(sample)  # type: ignore[attr-defined, no-any-return]
        return LATER.setdefault(sample, random.Random(sample)).random()


@pytest.mark.parametrize("kind", ["one", "sample", "nested", "module"])
def test_generators_that_a_dataset_makes_as_it_reads_draw_numbers_of_the_place_too(kind: str) -> None:
    plan = BatchPlan(size=400, global_batch=80, world=1)

    def drawn(start: int = 0, loader_workers: int = 0, seed: int = 1, epoch: int = 0) -> list[Tensor]:
        split = LateGenerators(400, kind)
        loader = TrainLoader(split, plan=plan, seed=seed, rank=0, loader_workers=loader_workers)
        return [batch.inputs for at in range(epoch + 1) for step in loader.epoch(at, start) for batch in step]

    first = drawn(epoch=1)
    assert all(map(torch.equal, first, drawn(loader_workers=2, epoch=1)))
    assert all(map(torch.equal, first[1:5], drawn(start=1)))
    assert len(set(torch.cat([*first, *drawn(seed=2)]).tolist())) == 3 * 400


class Fresh(LateGenerators):
    """Reads other values each time: it draws from the operating system, counts, or has more generators than are looked for."""

    def __init__(self, kind: str) -> None:
        super().__init__(12_000, kind)
        self.calls = 0
        self.many = [random.Random(one) for one in range(12_000 if kind == "many" else 0)]
        self.kept: list[object] = []

    def drawn(self, sample: int) -> float:
        self.calls += 1
        if self.kind == "kept":
            self.kept.append(np.random.default_rng())
        values: dict[str, Callable[[], float]] = {
            "system": np.random.default_rng().random,
            "counts": lambda: float(self.calls),
        }
        if self.kind == "many":
            return self.many[sample].random()
        return values.get(self.kind, lambda: 0.0)()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("system", "train split of dataset own: the inputs of samples 0 to 15 are others"),
        ("counts", "train split of dataset own: the inputs of samples 0 to 15 are others"),
        ("many", "train split of dataset own: the inputs of samples 11984 to 11999 are others"),
        ("kept", "has made and kept new generators"),
    ],
)
def test_a_dataset_whose_numbers_cannot_be_drawn_again_is_refused(kind: str, said: str) -> None:
    split = Fresh(kind)
    spec = SampleSpec(shape=(), outputs=1)
    bundle = DataBundle(name="own", spec=spec, train=split, validation=split, test=split, fingerprint="")
    with pytest.raises(SettingsError, match=said):
        check_own_draws(bundle, is_augmented=True)


class OneBuffer(IdSplit):
    """Returns the same memory each time."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.buffer, self.targets = np.empty((size, 1), np.float32), torch.empty(size, dtype=torch.int64)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        assert uniforms is None
        self.buffer[: len(ids), 0] = ids
        self.targets[: len(ids)] = torch.from_numpy(ids)
        return torch.from_numpy(self.buffer[: len(ids)]), self.targets[: len(ids)]


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_a_dataset_may_return_the_same_memory_each_time(loader_workers: int) -> None:
    plan = BatchPlan(size=48, global_batch=12, world=1, accumulation=3)
    split = OneBuffer(48)
    for step in list(TrainLoader(split, plan=plan, seed=1, rank=0, loader_workers=loader_workers).epoch(0)):
        for batch in step:
            assert batch.targets.tolist() == batch.inputs[:, 0].tolist() == batch.ids.tolist()
    for batch in list(EvalLoader(split, batch=12, rank=0, world=1, loader_workers=loader_workers)):
        assert batch.targets.tolist() == batch.inputs[:, 0].tolist() == batch.ids.tolist()
