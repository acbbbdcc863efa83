"""The content of a checkpoint: all registered state, saved and restored under stable names.

    states = StateRegistry(model=ModelState(module), optimizer=OptimizerState(optimizer, module))
    states.register("ema", averaged_model)

The tensors of a state go to `<name>.safetensors`, or of every rank to `<name>-rank-<rank>.safetensors`, copied through pinned host
memory; its other values go to `state.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor

from training.checkpoint.manifest import MODEL_FILE, OPTIMIZER_FILE, TENSOR_SUFFIX
from training.checkpoint.reader import SavedTensors
from training.checkpoint.sharding import NamedTensors
from training.checkpoint.sharding import whole as gathered
from training.checkpoint.store import VerifiedCheckpoint
from training.errors import ResumeMismatchError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@runtime_checkable
class Stateful(Protocol):
    """Has state to save and restore. `torch.nn.Module` and `torch.amp.GradScaler` satisfy it."""

    def state_dict(self) -> dict[str, Any]:
        """The state as a flat dictionary of tensors and JSON values. Called on every rank at the same step; rank 0's values are written.

        Tensors may be live: they are copied before the next step. An empty state is not saved. Under a strategy that shards its state
        (`Strategy.shards_state`) the checkpoint has the union of the ranks' tensors: the parts of those that are sharded (`DTensor`);
        plain ones that one rank has, such as the weights of its pipeline stage, from that rank; plain ones that several ranks have
        from the lowest, as they are equal. Under other strategies rank 0's are written, and sharded ones are gathered.
        """
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Load what the ranks have saved: tensors, which the callee may keep, and JSON values as decoded.

        Tensors are whole and on the CPU, and this rank gets all of them; of a `Partial` state it gets those of `tensors_to_load`.

        Raises:
            ResumeMismatchError: the state does not fit.
        """
        ...


@runtime_checkable
class Partial(Stateful, Protocol):
    """Has state of which a rank needs a part: a part of each tensor, or some of the tensors. Only that is read."""

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """The tensors to read on this rank, by name; they are overwritten, and given to `load_state_dict`.

        A checkpoint of which no rank takes some tensor is refused, so a rank leaves out the names that are another's.

        Args:
            saved: all tensors of the state in the checkpoint, whole, without content (on the device `meta`).

        Returns:
            Tensors of the same whole shapes, plain or sharded, new or live.

        Raises:
            ResumeMismatchError: the checkpoint lacks a tensor that this rank needs, or has it in another shape or type.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CollectedState:
    """The state of a run at one step.

    Attributes:
        tensors: live tensors by file and key.
        values: JSON values by registered name and key.
        headers: what the header of a file holds besides the tensors, by file.
    """

    tensors: dict[str, NamedTensors]
    values: dict[str, dict[str, Any]]
    headers: dict[str, dict[str, str]] = field(default_factory=dict)


class StateRegistry:
    """The states of a run by name, in the order in which they are collected and restored."""

    def __init__(self, **states: Stateful) -> None:
        self._states: dict[str, Stateful] = {}
        for name, stateful in states.items():
            self.register(name, stateful)

    def register(self, name: str, stateful: Stateful) -> None:
        """Save and restore a state under a name, which must not change during a run.

        Raises:
            ValueError: the name is taken, or is not a lower-case identifier.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"state {name!r} of {type(stateful).__name__}: a name matches {_NAME.pattern}")
        if name in self._states:
            owner = type(self._states[name]).__name__
            raise ValueError(
                f"state {name!r} of {type(stateful).__name__}: {owner} is already registered under that name"
            )
        self._states[name] = stateful

    def collect(self, *, whole: bool = True) -> CollectedState:
        """The state of the run. Tensors are not copied, but for sharded ones that `whole` gathers on rank 0, which is a collective."""
        tensors: dict[str, NamedTensors] = {}
        values: dict[str, dict[str, Any]] = {}
        for name, stateful in self._states.items():
            state, file = stateful.state_dict(), name + TENSOR_SUFFIX
            own = {
                key: gathered(value) if whole else value for key, value in state.items() if isinstance(value, Tensor)
            }
            if own or (whole and file in {MODEL_FILE, OPTIMIZER_FILE}):  # format 1 has these two files always
                tensors[file] = own
            if len(own) < len(state):
                values[name] = {key: value for key, value in state.items() if key not in own}
        return CollectedState(tensors=tensors, values=values)

    def restore(self, checkpoint: VerifiedCheckpoint, *, shards_state: bool = False) -> list[str]:
        """Restore every state that the checkpoint holds.

        Args:
            checkpoint: of any strategy and number of ranks.
            shards_state: whether the ranks have different parts of the state; then this is a collective.

        Returns:
            Names of the states that the checkpoint does not hold and that therefore keep their initial values.

        Raises:
            ResumeMismatchError: the checkpoint holds a state that is not registered, or one that does not fit.
        """
        values, files = checkpoint.state.values, checkpoint.manifest.tensor_files
        saved = values.keys() | files.keys()
        if unknown := sorted(saved - self._states.keys()):
            raise ResumeMismatchError(
                f"the checkpoint {checkpoint.path} holds state that nothing in this run restores: {', '.join(unknown)}",
                remedy="register what saved it, e.g. the callback of that name, or start a new run under another run.name",
            )
        wanted = [name for name in self._states if name in saved]
        stored = {name: SavedTensors([checkpoint.path / file.name for file in files[name]]) for name in files}
        with _naming(checkpoint.path):
            taken = self._targets(stored, shards_state=shards_state)
        for name in wanted:
            tensors = taken.get(name, {})
            if tensors:
                stored[name].read_into(tensors)
            with _naming(checkpoint.path):
                self._states[name].load_state_dict({**tensors, **values.get(name, {})})
        return [name for name, stateful in self._states.items() if name not in saved and stateful.state_dict()]

    def _targets(self, stored: Mapping[str, SavedTensors], *, shards_state: bool) -> dict[str, NamedTensors]:
        """The tensors to read, by state and name.

        Raises:
            ResumeMismatchError: a state does not fit, on any rank, or no rank takes a tensor.
        """
        saved = {name: tensors.describe() for name, tensors in stored.items()}
        taken: dict[str, NamedTensors] = {}
        problem: ResumeMismatchError | None = None
        try:
            taken = {name: _tensors_to_load(self._states[name], tensors) for name, tensors in saved.items()}
        except ResumeMismatchError as error:
            problem = error
        left = {(name, key) for name, named in saved.items() for key in named.keys() - taken.get(name, {}).keys()}
        problems, lefts = [problem], [left]
        if shards_state:
            found: list[tuple[ResumeMismatchError | None, set[tuple[str, str]]]] = [
                (problem, left)
            ] * dist.get_world_size()
            dist.all_gather_object(found, (problem, left))
            problems, lefts = [one for one, _ in found], [one for _, one in found]
        for each in problems:
            if each is not None:
                raise each
        for name, key in sorted(set.intersection(*lefts)):
            raise ResumeMismatchError(
                f"{key} is {describe(saved[name][key])} in the checkpoint and absent in this run's {name}",
                remedy="set model.name and model.options back, or start a new run under another run.name",
            )
        return taken


def describe(tensor: Tensor | None) -> str:
    """Type and shape of a tensor, e.g. `float32 [3, 4]`, or `absent`."""
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _tensors_to_load(state: Stateful, saved: NamedTensors) -> NamedTensors:
    if isinstance(state, Partial):
        return state.tensors_to_load(saved)
    return {key: torch.empty_like(value, device="cpu") for key, value in saved.items()}


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the checkpoint in the block's errors."""
    try:
        yield
    except ResumeMismatchError as error:
        raise ResumeMismatchError(
            f"the checkpoint {path} does not fit: {error.args[0]}", remedy=error.remedy
        ) from error
