"""The interface of datasets: splits that read samples by id, a fingerprint, and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.listing import FileListing


@dataclass(frozen=True)
class SampleSpec:
    """The samples of a dataset, from which a model and an objective are built.

    Attributes:
        shape: shape of one input, e.g. (1, 8, 8) for a grey image of 8 x 8, (784,) for features or (128,) for tokens.
        outputs: size of the last dimension of what a model returns: classes, labels, values to predict, or tokens.
        vocabulary: inputs are token ids below it, int64; 0: they are float32.
        is_sequence: the model returns one vector of `outputs` for each position of the input, instead of one for each sample.
    """

    shape: tuple[int, ...]
    outputs: int
    vocabulary: int = 0
    is_sequence: bool = False

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what a model returns for one sample."""
        return (*self.shape, self.outputs) if self.is_sequence else (self.outputs,)


class Split(Protocol):
    """Samples with random access, which several processes may read concurrently.

    Splits augment their samples themselves, where it is cheapest: on the raw bytes of an image in memory, or in the
    resize after decoding a file. Augmentation is a pure function of the uniforms passed to `read`.
    """

    @property
    def draws(self) -> int:
        """Uniforms that augmentation needs per sample; 0 for a split without augmentation."""

    def __len__(self) -> int:
        """Number of samples; their ids are 0 ... len - 1."""

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Reads the samples with these ids.

        Args:
            ids: ids of the samples, shape (n,); an id may occur more than once.
            uniforms: numbers in [0, 1) that determine the augmentation, shape (n, draws); None disables it.

        Returns:
            Inputs of shape (n, *spec.shape), normalised float32 or int64 tokens, and the targets that the objective expects:
            classes are int64 of shape (n,), labels and values float32 of shape (n, spec.outputs), the next tokens of a
            sequence int64 of shape (n, *spec.shape).

        Raises:
            DataError: a sample's file is missing or unreadable.
        """


@dataclass(frozen=True, kw_only=True)
class DataBundle:
    """A loaded dataset.

    Attributes:
        name: name of the dataset, for reports.
        spec: shapes of inputs and outputs.
        train: samples to fit the weights to.
        validation: samples to select by (best checkpoint, hyperparameters).
        test: samples for the final metrics only.
        fingerprint: sha256, in hex, over everything that determines the samples and their split; equal fingerprints
            mean equal samples under equal ids. A run only resumes with an equal fingerprint.
        files: content, by file name, of what inference needs beside the weights: `tokenizer.json`, a vocabulary of the library
            tokenizers, and `classes.json`, a list of names, make MLflow's model one of texts. They are kept in the folder of the run
            and in that of the exported model. The fingerprint covers what they depend on.
        notes: what a user should know of how the files were read, a line each.
        listing: the files that it was read from; None if a resume has none to compare.
        earlier: fingerprints that an earlier release gave these files, and the setting that reads them as it did.
    """

    name: str
    spec: SampleSpec
    train: Split
    validation: Split
    test: Split
    fingerprint: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    listing: FileListing | None = None
    earlier: Mapping[str, str] = field(default_factory=dict)

    @property
    def splits(self) -> dict[str, Split]:
        """The splits by name; one that serves as validation and test once."""
        splits = {"train": self.train, "validation": self.validation}
        return splits if self.test is self.validation else {**splits, "test": self.test}


@dataclass(frozen=True, eq=False)
class Batch:
    """The input of one forward pass of one rank.

    The first `count` rows are the batch. The rows after them are padding with other samples, because batch norm needs
    at least two rows; loss and metrics exclude them.

    Attributes:
        inputs: float32 or int64, shape (rows, *spec.shape).
        targets: shape (rows, ...), as `Split.read` returns them.
        ids: ids of the first `count` rows within their split, shape (count,).
        count: rows without padding, 0 <= count <= rows; 0 if a short last step has no sample for this rank.
    """

    inputs: Tensor
    targets: Tensor
    ids: NDArray[np.int64]
    count: int

    def pin_memory(self) -> Batch:
        """The batch in pinned host memory, from which a GPU can copy by itself. Called by a DataLoader's pinning thread, too."""
        return replace(self, inputs=self.inputs.pin_memory(), targets=self.targets.pin_memory())

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; the host does not wait for the copy of a pinned batch."""
        return replace(
            self,
            inputs=self.inputs.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
        )
