"""Checks the first samples of every split, before anything is trained: a sample that does not fit fails inside the model, or not at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from training.data.reading import read_samples
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError, SettingsError
from training.objectives.objective import Objective, check_range

_SAMPLES = 16


def check_first_samples(bundle: DataBundle, objective: Objective) -> None:
    """Read the first samples of train, validation and test, and compare them with the dataset's own description and the objective.

    Raises:
        SettingsError: inputs have another type or shape than the dataset says, or targets are none of the objective; names the dataset,
            the split, what was expected and what was found.
        DataError: a sample cannot be read.
    """
    for name, split in bundle.splits.items():
        try:
            inputs, targets = read_samples(split, np.arange(min(_SAMPLES, len(split))))
            _check_inputs(inputs, bundle.spec)
            objective.check_targets(targets, bundle.spec)
        except (SettingsError, DataError) as error:
            raise type(error)(f"{name} split of dataset {bundle.name}: {error.args[0]}", remedy=error.remedy) from None


def _check_inputs(inputs: Tensor, spec: SampleSpec) -> None:
    dtype = torch.int64 if spec.vocabulary else torch.float32
    if inputs.dtype != dtype or tuple(inputs.shape[1:]) != spec.shape:
        raise SettingsError(
            f"its inputs are of {inputs.dtype} and shape {tuple(inputs.shape[1:])}, and its SampleSpec says {dtype} and {spec.shape}",
            remedy="correct `read` of the split, or the SampleSpec of the dataset",
        )
    if spec.vocabulary:
        check_range(inputs, spec.vocabulary, what="the token")
