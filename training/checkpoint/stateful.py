"""The content of a checkpoint: all registered state, saved and restored under stable names.

    states = StateRegistry(model=ModelState(module), optimizer=OptimizerState(optimizer, module))
    states.register("ema", averaged_model)

The tensors of a state go to `<name>.safetensors`, copied through pinned host memory; its other values go to `state.json`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from safetensors.torch import load_file
from torch import Tensor

from training.checkpoint.manifest import MODEL_FILE, OPTIMIZER_FILE, TENSOR_SUFFIX
from training.checkpoint.sharding import whole
from training.checkpoint.store import VerifiedCheckpoint
from training.errors import ResumeMismatchError

NamedTensors = dict[str, Tensor]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@runtime_checkable
class Stateful(Protocol):
    """Has state to save and restore. `torch.nn.Module` and `torch.amp.GradScaler` satisfy it."""

    def state_dict(self) -> dict[str, Any]:
        """The state as a flat dictionary of tensors and JSON values. Called on every rank at the same step; rank 0's is written.

        Tensors that are sharded are gathered. Tensors may be live: they are copied before the next step. An empty state is not saved.
        """
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Load the `state_dict` of rank 0: tensors on the CPU, which the callee may keep, and JSON values as decoded.

        Raises:
            ResumeMismatchError: the state does not fit.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CollectedState:
    """The state of a run at one step.

    Attributes:
        tensors: live tensors by file and key.
        values: JSON values by registered name and key.
    """

    tensors: dict[str, NamedTensors]
    values: dict[str, dict[str, Any]]


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

    def collect(self) -> CollectedState:
        """The state of the run. Tensors that are whole are not copied."""
        tensors: dict[str, NamedTensors] = {}
        values: dict[str, dict[str, Any]] = {}
        for name, stateful in self._states.items():
            state, file = stateful.state_dict(), name + TENSOR_SUFFIX
            own = {key: whole(value) for key, value in state.items() if isinstance(value, Tensor)}
            if own or file in {MODEL_FILE, OPTIMIZER_FILE}:  # format 1 has these two files always
                tensors[file] = own
            if len(own) < len(state):
                values[name] = {key: value for key, value in state.items() if key not in own}
        return CollectedState(tensors=tensors, values=values)

    def restore(self, checkpoint: VerifiedCheckpoint) -> list[str]:
        """Restore every state that the checkpoint holds.

        Returns:
            Names of the states that the checkpoint does not hold and that therefore keep their initial values.

        Raises:
            ResumeMismatchError: the checkpoint holds a state that is not registered, or one that does not fit.
        """
        values = checkpoint.state.values
        files = {file.name for file in checkpoint.manifest.files if file.name.endswith(TENSOR_SUFFIX)}
        saved = values.keys() | {file.removesuffix(TENSOR_SUFFIX) for file in files}
        if unknown := sorted(saved - self._states.keys()):
            raise ResumeMismatchError(
                f"the checkpoint {checkpoint.path} holds state that nothing in this run restores: {', '.join(unknown)}",
                remedy="register what saved it, e.g. the callback of that name, or start a new run under another run.name",
            )
        for name in [name for name in self._states if name in saved]:
            file = name + TENSOR_SUFFIX
            # Cloned, because a loaded tensor is a view of the mapped file.
            tensors = (
                {key: value.clone() for key, value in load_file(checkpoint.path / file).items()}
                if file in files
                else {}
            )
            try:
                self._states[name].load_state_dict({**tensors, **values.get(name, {})})
            except ResumeMismatchError as error:
                raise ResumeMismatchError(
                    f"the checkpoint {checkpoint.path} does not fit: {error.args[0]}", remedy=error.remedy
                ) from error
        return [name for name, stateful in self._states.items() if name not in saved and stateful.state_dict()]
