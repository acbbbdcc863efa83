"""Refuses a model or an objective of the user's own that computes with what no checkpoint has: a count or a mean in a plain attribute.

A run that was resumed would go on without it, and an exported model be used without it, and neither would say so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from training.data.types import SampleSpec
from training.errors import SettingsError
from training.models.trial_copy import device_of, drawing_on, trial_copy
from training.objectives.objective import Objective
from training.seeding import generators_of, seed_step

_PASSES = 3
_ROWS = 4

_Numbers = dict[str, object]


def refuse_hidden_state(module: nn.Module, rebuild: Callable[[], nn.Module], *, model: str, spec: SampleSpec) -> None:
    """Refuse a model that computes other outputs after a few passes in training mode than a new one with its saved state.

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
    with _trial(module):
        used = _used(module, spec)
        if used is None:
            return
        saved = {name: value.clone() for name, value in used.state_dict().items()}
        numbers, buffers = _numbers(used), {name: one.clone() for name, one in used.named_buffers()}
        expected = _outputs(used, buffers, spec)
        if expected is None:
            return
        del used
        restored = rebuild()
        _load(restored, saved, model)
        differ = sorted(name for name, one in _numbers(restored).items() if not _equal(one, numbers.get(name)))
        if _close(expected, _outputs(restored, buffers, spec)):
            return
        again = _used(module, spec)
        if again is None or not _close(expected, _outputs(again, buffers, spec)):
            return
    raise SettingsError(
        f"model.name={model} computes with {', '.join(differ) or 'something'} that its state_dict() lacks: after {_PASSES} training passes "
        "its outputs differ from those of a new model that its state was loaded into, so a resumed run and the exported model would differ",
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
    with _trial(module):
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


def _load(restored: nn.Module, state: dict[str, Tensor], model: str) -> None:
    try:
        restored.load_state_dict(state)
    except RuntimeError as error:
        raise SettingsError(
            f"model.name={model}: its state does not fit a new model of the same settings: {error}",
            remedy="let the factory build the same parameters and buffers each time it is called",
        ) from error


@contextmanager
def _trial(module: nn.Module) -> Iterator[None]:
    with torch.no_grad(), drawing_on(device_of(module)), torch.compiler.set_stance("force_eager"):
        yield


def _used(module: nn.Module, spec: SampleSpec) -> nn.Module | None:
    """A copy of a model after some passes in training mode; None if there is none."""
    used = trial_copy(module)
    if used is None:
        return None
    try:
        used.train()
        for number in range(_PASSES):
            _pass(used, spec, number)
    except Exception:  # noqa: BLE001 - of a user's own code; the first step says so
        return None
    return used


def _outputs(module: nn.Module, buffers: dict[str, Tensor], spec: SampleSpec) -> list[Tensor] | None:
    """What an exported model computes, and with these buffers, of which checkpoints have all, a resumed one; None if it fails."""
    try:
        module.eval()
        exported = _pass(module, spec, _PASSES)
        for name, value in buffers.items():
            owner, _, key = name.rpartition(".")
            setattr(module.get_submodule(owner), key, value.clone())
        module.train()
        resumed = _pass(module, spec, _PASSES + 1)
        module.eval()
        return exported + resumed + _pass(module, spec, _PASSES + 2)
    except Exception:  # noqa: BLE001 - of a user's own code
        return None


def _pass(module: nn.Module, spec: SampleSpec, number: int) -> list[Tensor]:
    seed_step(0, number, 0, 0, own=generators_of(module))
    shape = (_ROWS, *spec.shape)
    inputs = torch.randint(spec.vocabulary, shape) if spec.vocabulary else torch.randn(shape)
    return [one.clone() for one in tree_leaves(module(inputs.to(device_of(module)))) if isinstance(one, Tensor)]


def _measured(objective: Objective, outputs: Tensor, targets: Tensor) -> list[Tensor]:
    seed_step(0, 0, 0, 0, own=generators_of(objective))
    return list(objective.measure(outputs.clone(), targets.clone()))


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
