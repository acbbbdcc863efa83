"""`data.reader=ray_data`: Ray Data reads the batches of a rank, in tasks on CPUs anywhere in the cluster.

Each rank streams the steps of an epoch that it has not done yet through a Ray Data pipeline of its own. A task reads a few steps of that
rank, as a loader process would, and Ray Data returns them in order (`preserve_order`). So the samples, their order and their augmentation
are those of `training.data.loader`, bit for bit, at every world size and after a resume.

`Dataset.streaming_split`, Ray's way to share a dataset among ranks, is not used: it gives a block to the rank that asks first, so that a
rank's samples depend on timing, and it cannot start in the middle of an epoch.
"""

from __future__ import annotations

import logging
import pickle
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import ray
import ray.data
import torch
from numpy.typing import NDArray
from ray.exceptions import RayError

from training.code.import_path import use_code
from training.data.loader import NO_WATCH, Share, StepReader, TrainLoader
from training.data.order import BatchPlan
from training.data.reading import Check
from training.data.types import Batch, Split
from training.errors import PlatformError, SettingsError

_ROWS: Final = 256
"""Samples that a task reads at least: starting it takes milliseconds."""

_NODE_LABEL: Final = "ray.io/node-id"
"""Label that Ray gives every node."""

_INPUTS, _TARGETS, _IDS, _ERROR = "inputs", "targets", "ids", "error"

_Columns = dict[str, NDArray[np.generic]]


class RayDataLoader(TrainLoader):
    """A `TrainLoader` whose batches are read by tasks of Ray Data."""

    def __init__(
        self,
        split: Split,
        *,
        plan: BatchPlan,
        seed: int,
        rank: int,
        loader_workers: int,
        prefetch: int = 2,
        augment: bool = True,
        equal_rows: bool = False,
        copy_to: torch.device | None = None,
        waiting: AbstractContextManager[object] = NO_WATCH,
        check: Check | None = None,
        rank_cpus: int,
        code: Path | None = None,
    ) -> None:
        """Puts the split into Ray's object store; starts no task yet.

        Args:
            split: see `TrainLoader`, also for the arguments that are not listed here.
            plan: see there.
            seed: see there.
            rank: see there.
            loader_workers: tasks of this rank that run at a time.
            prefetch: blocks, of one or more steps, that are fetched ahead.
            augment: see there.
            equal_rows: see there.
            copy_to: see there.
            waiting: see there.
            check: see there; in the rank.
            rank_cpus: CPUs of the cluster that all ranks together take.
            code: folder of the run's own code, which tasks import from.

        Raises:
            SettingsError: the split cannot be sent to other processes.
        """
        super().__init__(
            split,
            plan=plan,
            seed=seed,
            rank=rank,
            augment=augment,
            equal_rows=equal_rows,
            copy_to=copy_to,
            waiting=waiting,
        )
        self._check_targets = check
        self._tasks = loader_workers
        self._prefetch = prefetch
        self._placement = _placement(rank_cpus)
        self._read_steps = _ReadSteps(name=secrets.token_hex(8), reader=_put(self._reader), code=code)
        _configure()

    def _read(self, steps: list[tuple[int, int]]) -> Iterator[list[Batch]]:
        """Yields the micro-batches of each step.

        Raises:
            DataError: a sample cannot be read.
            PlatformError: Ray Data could not read a step, or returned other samples than it was asked for.
        """
        if not steps:
            return
        rows = _Rows(self._stream(steps))
        for request in steps:
            shares = self._reader.shares(request)
            try:
                found = [rows.take(len(share.ids)) for share in shares]
            except RayError as error:
                raise PlatformError(
                    f"Ray Data could not read step {request[1]} of epoch {request[0]}: {str(error).strip().splitlines()[-1]}",
                    remedy="look at Ray's logs; or read with loader processes: data.reader=loader",
                ) from error
            batches = [_batch(columns, share) for columns, share in zip(found, shares, strict=True)]
            if self._check_targets is not None:
                for batch in batches:
                    self._check_targets(batch.targets)
            yield batches

    def _stream(self, steps: list[tuple[int, int]]) -> Iterator[Mapping[str, NDArray[np.generic]]]:
        """The rows of the steps, block by block, in order."""
        together = max(1, _ROWS * self._plan.world // self._plan.global_batch)
        requests = ray.data.from_items(
            [{"epoch": epoch, "step": step} for epoch, step in steps], override_num_blocks=-(-len(steps) // together)
        )
        read = requests.map_batches(
            self._read_steps, batch_size=None, compute=ray.data.TaskPoolStrategy(size=self._tasks), **self._placement
        )
        return iter(read.iter_batches(batch_size=None, prefetch_batches=self._prefetch, batch_format="numpy"))


@dataclass(frozen=True, kw_only=True)
class _ReadSteps:
    """What a task does: reads the steps of its requests.

    Attributes:
        name: of the loader, unique in the cluster.
        reader: the loader's `StepReader`, as bytes in the object store.
        code: see `RayDataLoader`.
    """

    name: str
    reader: ray.ObjectRef
    code: Path | None

    def __call__(self, requests: Mapping[str, NDArray[np.int64]]) -> _Columns:
        reader = self._unpacked()
        steps = [(int(epoch), int(step)) for epoch, step in zip(requests["epoch"], requests["step"], strict=True)]
        try:
            batches = [batch for step in steps for batch in reader(step)]
        except PlatformError as error:  # as a value: Ray Data would raise another one, without the remedy
            return {_ERROR: np.array([pickle.dumps(error)], dtype=object)}
        return {
            _INPUTS: np.concatenate([batch.inputs.numpy() for batch in batches]),
            _TARGETS: np.concatenate([batch.targets.numpy() for batch in batches]),
            _IDS: np.concatenate([share.ids for step in steps for share in reader.shares(step)]),
        }

    def _unpacked(self) -> StepReader:
        """The reader, which a process unpacks once: it keeps open files and decoded row groups."""
        if self.name not in _readers:
            if self.code is not None:
                use_code(self.code)
            torch.set_num_threads(1)  # Ray runs a task for each CPU
            _readers[self.name] = ray.cloudpickle.loads(ray.get(self.reader))
        return _readers[self.name]


_readers: dict[str, StepReader] = {}
"""The readers of this process, by loader."""


class _Rows:
    """Rows of a stream of blocks, taken in any number."""

    def __init__(self, blocks: Iterable[Mapping[str, NDArray[np.generic]]]) -> None:
        self._blocks = iter(blocks)
        self._block: Mapping[str, NDArray[np.generic]] = {}
        self._used = 0

    def take(self, count: int) -> _Columns:
        """The next `count` rows, in memory of their own.

        Raises:
            PlatformError: the task that should have read them raised it.
        """
        parts: list[Mapping[str, NDArray[np.generic]]] = []
        while count:
            left = len(self._block[_IDS]) - self._used if _IDS in self._block else 0
            if not left:
                self._block, self._used = next(self._blocks), 0
                if _ERROR in self._block:
                    raise pickle.loads(self._block[_ERROR][0])  # noqa: S301 - of a task of this loader
                continue
            taken = min(left, count)
            parts.append({name: values[self._used : self._used + taken] for name, values in self._block.items()})
            self._used += taken
            count -= taken
        return {name: np.concatenate([part[name] for part in parts]) for name in (_INPUTS, _TARGETS, _IDS)}


def _batch(columns: _Columns, share: Share) -> Batch:
    if not np.array_equal(columns[_IDS], share.ids):
        raise PlatformError(
            f"Ray Data returned samples {columns[_IDS][:5]}…, but {share.ids[:5]}… were asked for",
            remedy="this is an error of the platform: report it, and read with data.reader=loader",
        )
    return Batch(
        inputs=torch.from_numpy(columns[_INPUTS]),
        targets=torch.from_numpy(columns[_TARGETS]),
        ids=share.ids[: share.count],
        count=share.count,
    )


def _put(reader: StepReader) -> ray.ObjectRef:
    """Bytes, and not an object, so that nothing is unpacked before the run's own code can be imported."""
    try:
        return ray.put(ray.cloudpickle.dumps(reader))
    except (TypeError, AttributeError, RuntimeError) as error:  # what pickling raises
        raise SettingsError(
            f"data.reader=ray_data sends the dataset to other processes, and it cannot be pickled: {error}",
            remedy="leave what cannot be sent, such as open files, out of the split's state (__getstate__), or set data.reader=loader",
        ) from error


def _placement(rank_cpus: int) -> dict[str, Any]:
    """Where tasks run: on CPUs that no rank takes, or else beside the rank, where loader processes would run."""
    if ray.cluster_resources().get("CPU", 0) > rank_cpus:
        return {"num_cpus": 1}
    return {"num_cpus": 0, "label_selector": {_NODE_LABEL: ray.get_runtime_context().get_node_id()}}


def _configure() -> None:
    """Let Ray Data return blocks in order, and print nothing but warnings."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
