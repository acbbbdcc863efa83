"""Refuses a model or an objective of the user's own that computes with what no checkpoint has: a count or a mean in a plain attribute.

A run that was resumed would go on without it, and an exported model be used without it, and neither would say so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from training.checkpoint.state import load_own
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.trial_copy import device_of, drawing_on, trial_copy
from training.objectives.objective import Objective
from training.seeding import generators_of, seed_step
from training.strategies.gradient_hooks import hooks_of

_PASSES = 3
_MANY = 10**6
"""Of what some passes add to a count, to see whether the model computes otherwise after as many."""
_ROWS = 4

_Numbers = dict[str, object]


def refuse_hidden_state(module: nn.Module, rebuild: Callable[[], nn.Module], *, model: str, spec: SampleSpec) -> None:
    """Refuse a model that computes other outputs after a few passes in training mode than a new one with its saved state.

    A number in an attribute that grows with each pass is also tried with what it would be after a million. A model with hooks on gradients
    is compared by its gradients, too. What neither sees: a count that is no attribute, as in a hook's closure, and acts later.

    Buffers that are not persistent are in checkpoints; in evaluation a model has to do without what they have become.

    Does nothing if the model is too large for a copy, cannot be copied, or takes no random samples, and if a second copy computes
    something else from the same passes, as with random numbers of the system.

    Args:
        module: the model as it begins, which stays as it is, like the global generators.
        rebuild: builds it again; its weights, and whatever else it draws, may be others.
        model: its name.
        spec: the samples that it was built for.

    Raises:
        SettingsError: they differ; names the attributes that do. Or the state cannot be loaded into a new model.
    """
    begun = module.state_dict()
    with _trying(module):
        before = _numbers(module)
        _compare(before, partial(trial_copy, module), rebuild, _Trial(spec), model)
        if _has_gradient_hooks(module):  # copies lack those of weights
            _compare(before, lambda: _loaded(rebuild(), begun, model), rebuild, _Trial(spec, has_gradients=True), model)


def _compare(
    before: _Numbers,
    make: Callable[[], nn.Module | None],
    rebuild: Callable[[], nn.Module],
    trial: _Trial,
    model: str,
) -> None:
    """Compare a model that `make` makes, after some passes, with one that its state is loaded into."""
    used = trial.used(make())
    if used is None:
        return
    after, kinds = _numbers(used), _kinds(used)
    saved = {name: value.clone() for name, value in used.state_dict().items()}
    buffers = {name: one.clone() for name, one in used.named_buffers()}
    expected = trial.outputs(used, buffers)
    if expected is None:
        return
    del used
    if counts := _counts(before, after, lambda: trial.used(make(), range(_PASSES - 1, _PASSES))):
        later = trial.used(make())
        if later is not None and not _close(expected, trial.outputs(_advanced(later, counts), buffers)):
            raise _refused(model, sorted(counts), f"with what they are after {_MANY * _PASSES:,} training passes")
    restored = _loaded(rebuild(), saved, model)
    differ = sorted(name for name, one in _numbers(restored).items() if not _equal(one, after.get(name)))
    others = _kinds(restored)
    differ += sorted(name for name, kind in kinds.items() if kind is not others.get(name))
    if _close(expected, trial.outputs(restored, buffers)):
        return
    again = trial.used(make())
    if again is not None and _close(expected, trial.outputs(again, buffers)):
        raise _refused(
            model, differ, f"after {_PASSES} training passes and in a new model that its state was loaded into"
        )


def _refused(model: str, names: list[str], where: str) -> SettingsError:
    return SettingsError(
        f"model.name={model} computes with {', '.join(names) or 'something'} that its state_dict() lacks: its outputs or gradients differ "
        f"{where}, so a resumed run and the exported model would differ",
        remedy="keep it in a persistent buffer (register_buffer), changed in place, or compute without it",
    )


def refuse_counting_objective(objective: Objective, module: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Refuse an objective that measures the same outputs differently the second time, as with a weight that grows with each call.

    Args:
        objective: which stays as it is.
        module: the model, which stays as it is.
        inputs: of the model, on its device.
        targets: of the same samples.

    Raises:
        SettingsError: the sums differ.
    """
    with _trying(module):
        trial = trial_copy(module)
        try:
            measured = copy.deepcopy(objective)
            if trial is None or not isinstance(outputs := trial(inputs), Tensor):
                return
            sums = [_measured(measured, outputs, targets.to(inputs.device)) for _ in range(2)]
        except Exception:  # noqa: BLE001 - of a user's own code; the first step says so
            return
        if _close(*sums):
            return
    raise SettingsError(
        f"objective {type(objective).__name__}: measure returns other sums when it is called again with the same outputs and targets, so "
        "it keeps a state that no checkpoint has, and a resumed run would differ",
        remedy="compute the sums from the outputs and targets alone; let the model count in a buffer what changes during training, and "
        "return it with its outputs",
    )


def _measured(objective: Objective, outputs: Tensor, targets: Tensor) -> list[Tensor]:
    seed_step(0, 0, 0, 0, own=generators_of(objective))
    return list(objective.measure(outputs.clone(), targets.clone()))


def _loaded(module: nn.Module, state: dict[str, Tensor], model: str) -> nn.Module:
    try:
        load_own(module, state)
    except RuntimeError as error:
        raise SettingsError(
            f"model.name={model}: its state does not fit a new model of the same settings: {error}",
            remedy="let the factory build the same parameters and buffers each time it is called",
        ) from error
    return module


@contextmanager
def _trying(module: nn.Module) -> Iterator[None]:
    with torch.no_grad(), drawing_on(device_of(module)), torch.compiler.set_stance("force_eager"):
        yield


@dataclass(frozen=True)
class _Trial:
    """Passes of models through the same random samples, and of their gradients, too."""

    spec: SampleSpec
    has_gradients: bool = False

    def used(self, module: nn.Module | None, passes: range = range(_PASSES)) -> nn.Module | None:
        """A model after some passes in training mode; None if it fails."""
        if module is None:
            return None
        try:
            module.train()
            for number in passes:
                self._pass(module, number)
        except Exception:  # noqa: BLE001 - of a user's own code; the first step says so
            return None
        return module

    def outputs(self, module: nn.Module, buffers: dict[str, Tensor]) -> list[Tensor] | None:
        """What an exported model computes, and with these buffers, of which checkpoints have all, a resumed one; None if it fails."""
        try:
            module.eval()
            exported = self._pass(module, _PASSES)
            for name, value in buffers.items():
                owner, _, key = name.rpartition(".")
                setattr(module.get_submodule(owner), key, value.clone())
            module.train()
            resumed = self._pass(module, _PASSES + 1)
            module.eval()
            return exported + resumed + self._pass(module, _PASSES + 2)
        except Exception:  # noqa: BLE001 - of a user's own code
            return None

    def _pass(self, module: nn.Module, number: int) -> list[Tensor]:
        seed_step(0, number, 0, 0, own=generators_of(module))
        shape = (_ROWS, *self.spec.shape)
        inputs = torch.randint(self.spec.vocabulary, shape) if self.spec.vocabulary else torch.randn(shape)
        with torch.set_grad_enabled(module.training and self.has_gradients):
            outputs = [one for one in tree_leaves(module(inputs.to(device_of(module)))) if isinstance(one, Tensor)]
            found = [one.detach().clone() for one in outputs]
            if losses := [one.float().square().mean() for one in outputs if one.requires_grad]:
                module.zero_grad()
                torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
                found += [one.grad.clone() for one in module.parameters() if one.grad is not None]
        return found


def _has_gradient_hooks(module: nn.Module) -> bool:
    parts = (one._backward_hooks or one._backward_pre_hooks for one in module.modules())  # noqa: SLF001 - torch has no public way
    return any(map(hooks_of, module.parameters())) or any(parts)


def _counts(before: _Numbers, after: _Numbers, last: Callable[[], nn.Module | None]) -> dict[str, float]:
    """What some training passes have added to each number in an attribute of a model that the `last` of them alone does not explain."""
    added = {
        name: value - start
        for name, value in after.items()
        if isinstance(value, int | float) and isinstance(start := before.get(name), int | float) and value != start
    }
    once = last() if added else None
    if once is None:
        return {}
    overwritten = _numbers(once)
    return {name: one for name, one in added.items() if overwritten.get(name) != after[name]}


def _advanced(module: nn.Module, counts: dict[str, float]) -> nn.Module:
    for name, added in counts.items():
        owner, _, key = name.rpartition(".")
        part = module.get_submodule(owner)
        setattr(part, key, getattr(part, key) + _MANY * added)
    return module


def _numbers(module: nn.Module) -> _Numbers:
    """What the parts of a model keep in plain attributes and in buffers that are not saved, by name."""
    saved = module.state_dict()
    found: _Numbers = {}
    for path, part in module.named_modules():
        for name, value in (*vars(part).items(), *part.named_buffers(recurse=False)):
            key = f"{path}.{name}".lstrip(".")
            if isinstance(value, int | float | Tensor | np.ndarray) and key not in saved:
                found[key] = value.clone() if isinstance(value, Tensor) else copy.copy(value)
    return found


def _kinds(module: nn.Module) -> dict[str, type]:
    """The type of each attribute of a model's parts, by name: a pass may have made what was None."""
    parts = module.named_modules()
    return {f"{path}.{name}".lstrip("."): type(value) for path, part in parts for name, value in vars(part).items()}


def _equal(left: object, right: object) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return torch.equal(left, right)
    return np.array_equal(np.asarray(left), np.asarray(right))


def _close(left: list[Tensor], right: list[Tensor] | None) -> bool:
    """Whether outputs are the same but for rounding."""
    return (
        right is not None
        and len(left) == len(right)
        and all(
            one.shape == other.shape
            and torch.allclose(one.float(), other.float(), rtol=1e-4, atol=1e-5, equal_nan=True)
            for one, other in zip(left, right, strict=True)
        )
    )
