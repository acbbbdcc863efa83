"""`tar_shards`: images in tar files as WebDataset writes them, each read from its place in the shard.

The members of a sample have one name up to its first dot, e.g. `dog/0001.jpg` and `dog/0001.cls`.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings
from training.data.classes import number_classes
from training.data.contents import content_arrays
from training.data.fingerprint import fingerprint, image_fingerprints
from training.data.holdout import split_rows
from training.data.images import DRAWS, ImageDecoder
from training.data.listing import FileListing
from training.data.options import TarShardsOptions
from training.data.sample_order import WindowedSplit
from training.data.split_files import SplitFiles, locate_tar_shards
from training.data.tar_index import ShardError, ShardIndex, read_index
from training.data.types import DataBundle, SampleSpec, Split
from training.errors import DataError

_OPEN = 64
"""Shards that a process keeps open; a process may have 1,024 open files on most systems."""


class ShardSamples:
    """The images of all shards, numbered in the order of the shards."""

    def __init__(self, shards: Sequence[Path], indexes: Sequence[ShardIndex]) -> None:
        """Opens nothing yet.

        Args:
            shards: the tar files.
            indexes: the index of each.
        """
        self._shards = shards
        self._starts = np.concatenate([[0], np.cumsum([len(index.keys) for index in indexes], dtype=np.int64)])
        # One array each for all shards: loader processes share their memory, see `ImageFolderSplit`.
        self._keys = np.concatenate([index.keys for index in indexes])
        self._offsets = np.concatenate([index.offsets for index in indexes])
        self._sizes = np.concatenate([index.sizes for index in indexes])
        self._open: OrderedDict[int, int] = OrderedDict()

    def read(self, number: int) -> bytes:
        """The bytes of an image.

        Raises:
            DataError: the shard is shorter than its index says.
            OSError: it cannot be read.
        """
        # Reads at a place share no position, also not between a rank and the loader processes that inherit its open files.
        size = int(self._sizes[number])
        content = os.pread(self._descriptor(self._shard(number)), size, int(self._offsets[number]))
        if len(content) < size:
            raise DataError(f"{self.name(number)} is truncated", remedy="write or copy the shard again")
        return content

    def name(self, number: int) -> str:
        """Shard and name of a sample, for errors."""
        return f"{os.fsdecode(self._keys[number])} in {self._shards[self._shard(number)]}"

    def shard_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each sample's shard, from 0."""
        return (np.searchsorted(self._starts, numbers, side="right") - 1).astype(np.int64, copy=False)

    def _shard(self, number: int) -> int:
        return int(self.shard_of(np.array(number)))

    def _descriptor(self, shard: int) -> int:
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        if len(self._open) == _OPEN:
            os.close(self._open.popitem(last=False)[1])
        self._open[shard] = os.open(self._shards[shard], os.O_RDONLY | os.O_CLOEXEC)
        return self._open[shard]

    def __getstate__(self) -> dict[str, object]:
        """Without the open files, which are those of this process."""
        return {**self.__dict__, "_open": OrderedDict()}

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


class TarShardSplit:
    """A `Split` of images in shards."""

    def __init__(
        self,
        samples: ShardSamples,
        rows: NDArray[np.int64],
        labels: NDArray[np.int64],
        *,
        decoder: ImageDecoder,
        augments: bool = False,
    ) -> None:
        """Reads nothing yet.

        Args:
            samples: the images of all splits.
            rows: numbers of this split's.
            labels: class of every image of all splits, shape (n,).
            decoder: makes the samples.
            augments: random crop and mirror when `read` gets uniforms.
        """
        self._samples = samples
        self._rows = rows
        self._labels = labels
        self._decoder = decoder
        self.draws = DRAWS if augments else 0

    def __len__(self) -> int:
        """Number of images."""
        return len(self._rows)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Decodes the images with these ids; see `Split.read`."""
        rows = self._rows[ids]
        images = (
            (place, io.BytesIO(self._samples.read(int(row))), self._samples.name(int(row)))
            for place, row in enumerate(rows)
        )
        inputs = self._decoder.samples(images, uniforms=uniforms, count=len(ids))
        return inputs, torch.from_numpy(self._labels[rows])


def load_tar_shards(settings: DataSettings, options: TarShardsOptions) -> DataBundle:
    """Loads the shards under PATH/train, PATH/val (or PATH/validation) and PATH/test, or without PATH/train those under PATH.

    Without validation shards, `validation_fraction` of each class of train is held out. Without test shards, the validation split
    also serves as test split.

    Raises:
        DataError: there are no shards, shards are damaged, or a class is not in the training split.
    """
    located = locate_tar_shards(settings.folder)
    indexes = _read_indexes(located, options.target)
    samples = ShardSamples(located.all, indexes)
    ends = np.cumsum([len(shards) for shards in located])
    sizes = np.array([len(index.keys) for index in indexes])
    train_count, validation_count, test_count = (int(part.sum()) for part in np.split(sizes, ends[:2]))
    classes = number_classes(
        np.concatenate([index.labels for index in indexes]),
        train=train_count,
        what=f"data.options.target={options.target}",
    )
    labels = classes.numbers
    train, validation, test = split_rows(
        (train_count, validation_count, test_count), labels[:train_count], settings.validation_fraction
    )
    side = options.image_size
    decoder = ImageDecoder(side=side, orientation=options.orientation)
    shuffled: Split = TarShardSplit(samples, train, labels, decoder=decoder, augments=True)
    if options.shuffle == "windowed":
        shuffled = WindowedSplit(shuffled, groups=samples.shard_of(train), window=options.window)
    held_out = TarShardSplit(samples, validation, labels, decoder=decoder)
    names = [os.fsencode(located.name(shard)) for shard in located.all]
    hashes = [index.sha256() for index in indexes]
    contents = content_arrays(settings, names)
    stored = fingerprint(
        {
            "dataset": "tar_shards",
            **options.fingerprinted(),
            "shards": [located.name(shard) for shard in located.all],
            "classes": list(classes.names),
            "validation": None if located.validation else settings.validation_fraction,
        },
        {"indexes": np.frombuffer(b"".join(hashes), dtype=np.uint8), **contents},
    )
    identity, earlier = image_fingerprints(stored, options.orientation)
    return DataBundle(
        name="tar_shards",
        spec=SampleSpec(shape=(3, side, side), outputs=classes.count),
        train=shuffled,
        validation=held_out,
        test=TarShardSplit(samples, test, labels, decoder=decoder) if located.test else held_out,
        fingerprint=identity,
        files=classes.files,
        notes=classes.notes,
        listing=FileListing.of(names, contents, hashes),
        earlier=earlier,
    )


def _read_indexes(located: SplitFiles, target: str) -> list[ShardIndex]:
    indexes, damaged = [], []
    for shard in located.all:
        try:
            indexes.append(read_index(shard, target=target))
        except ShardError as error:
            damaged.append(f"{shard}: {error}")
    if damaged:
        raise DataError(
            "\n  ".join(damaged),
            remedy="write or copy these shards again, or set data.options.target to a member they have",
        )
    return indexes
