"""Which settings a run may change between two of its checkpoints, and why. Read without torch.

A checkpoint holds the tensors of the model and the optimizer, the loss scale, and what the run is: its `Identity`. A setting that none of
these depends on takes effect from the next step: `resume --set` and population based training change it. The others would be
refused on resume, or would make the checkpoint mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping

_RATE = "the learning rate is a function of the step and of these settings (training/optim.py)"
_HYPERPARAMETER = "an optimizer's tensors are saved, its hyperparameters are not (training/checkpoint/state.py)"
_STEP = "it acts within one optimizer step and leaves no state"
_EVALUATION = "it acts within one evaluation, whose metrics it changes by rounding at most"
_TRIALS = "the ranks of a trial evaluate it, because a search decides by each evaluation whether it goes on"
_READING = "it says how samples are read, not which"

CHANGEABLE: Mapping[str, str] = {
    "objective.options": "an objective has no state",
    "optimizer.learning_rate": _RATE,
    "optimizer.base_batch": _RATE,
    "optimizer.momentum": _HYPERPARAMETER,
    "optimizer.nesterov": _HYPERPARAMETER,
    "optimizer.betas": _HYPERPARAMETER,
    "optimizer.weight_decay": _HYPERPARAMETER,
    "schedule.name": _RATE,
    "schedule.warmup_steps": _RATE,
    "schedule.step_epochs": _RATE,
    "schedule.gamma": _RATE,
    "schedule.final_fraction": _RATE,
    "schedule.rise_fraction": _RATE,
    "loop.accumulation": _STEP,
    "loop.logical_shards": _STEP,
    "loop.clip_norm": _STEP,
    "loop.nonfinite": _STEP,
    "loop.evaluation_batch": _EVALUATION,
    "loop.log_sample_ids": "the ledger is apart from the checkpoint",
    "data.augment": _READING,
    "data.reader": _READING,
    "data.loader_workers": _READING,
    "data.prefetch": _READING,
    "data.pin_memory": _READING,
    "model.options.dropout": "dropout has no parameters",
}
"""Settings that may change, with the reason."""

KEPT: Mapping[str, str] = {
    "run.seed": "it is part of the run's identity: it fixes the order of the samples",
    "model.name": "it is part of the run's identity",
    "model.options": "the tensors of the checkpoint have the model's shapes",
    "model.output": "it is what the weights were trained for",
    "data.dataset": "the dataset's fingerprint is part of the run's identity",
    "data.path": "the dataset's fingerprint is part of the run's identity",
    "data.cache": "it is a copy of data.path",
    "data.options": "the dataset's fingerprint is part of the run's identity",
    "data.fingerprint": "the dataset's fingerprint is part of the run's identity",
    "data.validation_fraction": "the dataset's fingerprint is part of the run's identity",
    "objective.name": "it is part of the run's identity",
    "optimizer.name": "the optimizer's tensors are those of its class",
    "ema.decay": "the checkpoint holds the average",
    "loop.epochs": "a learning rate is a function of the planned steps, and trials are compared by epoch",
    "loop.max_steps": "a learning rate is a function of the planned steps",
    "loop.global_batch": "it is part of the run's identity: it fixes the samples of each step",
    "loop.evaluate_every": "trials are compared after equal epochs",
    "loop.validation": _TRIALS,
    "loop.validation_device": _TRIALS,
    "loop.validation_wait": _TRIALS,
    "precision.mode": "the checkpoint holds the loss scale of fp16",
    "precision.initial_scale": "the checkpoint holds the loss scale",
}
"""Settings that keep their value, with the reason."""


def is_changeable(key: str) -> bool:
    """Whether a run may resume from its checkpoint with another value of a setting, e.g. `optimizer.momentum`."""
    return _longest(key, CHANGEABLE) > _longest(key, KEPT)


def _longest(key: str, settings: Mapping[str, str]) -> int:
    """Length of the longest of the settings that is `key` or contains it; 0 if none is."""
    return max((len(one) for one in settings if key == one or key.startswith(f"{one}.")), default=0)
