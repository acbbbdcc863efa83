"""`parquet`: rows of Parquet files, decoded by row groups when they are read.

The inputs are columns of numbers, a column of lists of token ids, or one of encoded images. Targets are read once, into memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from training.config.schema import DataSettings, OptionValue
from training.data.contents import content_arrays
from training.data.fingerprint import fingerprint, image_fingerprints
from training.data.holdout import split_rows
from training.data.images import ImageDecoder
from training.data.listing import FileListing
from training.data.options import ParquetOptions
from training.data.parquet_columns import column_type, encoded, is_encoded, is_list, is_number, list_length, numbers
from training.data.parquet_files import ParquetFile, RowGroups, Values, open_all
from training.data.parquet_precision import merged_values
from training.data.parquet_splits import ParquetImageSplit, ParquetSplit
from training.data.parquet_targets import Targets, read_targets
from training.data.sample_order import WindowedSplit
from training.data.split_files import locate_parquet
from training.data.tokenizer import read_stored
from training.data.types import DataBundle, SampleSpec, Split
from training.errors import DataError, SettingsError

_MIB = 2**20

_LEAST_TOKENS = 2
"""Tokens of a row: a language model needs one to read and one to predict."""


def load_parquet(settings: DataSettings, options: ParquetOptions) -> DataBundle:
    """Loads the files under PATH/train, PATH/val (or PATH/validation) and PATH/test, or without PATH/train those under PATH.

    Without validation files, `validation_fraction` of each class of train is held out. Without test files, the validation split
    also serves as test split.

    Raises:
        SettingsError: a column is missing, or has a type that does not fit.
        DataError: there are no files or rows, or files are damaged or have nulls.
    """
    located = locate_parquet(settings.folder)
    files = open_all(located.all)
    counts = _counts(files, [len(split) for split in located])
    targets = (
        None
        if options.target is None
        else read_targets(files, options.target, train=len(located.train), kind=options.targets)
    )
    classes = None if targets is None else targets.classes
    strata = np.zeros(counts[0], dtype=np.int64) if targets is None else targets.strata[: counts[0]]
    train, validation, test = split_rows(counts, strata, settings.validation_fraction)
    source = _SOURCES[options.kind](files, options, targets)
    description: dict[str, OptionValue] = {
        "dataset": "parquet",
        **options.fingerprinted(),
        "files": [located.name(file) for file in located.all],
        "classes": list(classes.names) if classes else ([] if targets else None),
        "validation": None if located.validation else settings.validation_fraction,
    }
    footers = np.frombuffer(b"".join(file.sha256 for file in files), dtype=np.uint8)
    values = {} if targets is None else {"targets": targets.values}
    vocabulary = read_stored(settings.folder, source.spec) if options.kind == "tokens" else {}
    held_out = source.split(validation, False)
    names = [os.fsencode(located.name(file)) for file in located.all]
    contents = content_arrays(settings, names)
    stored = fingerprint(
        description,
        {
            "footers": footers,
            **values,
            **contents,
            **{name: np.frombuffer(file, np.uint8) for name, file in vocabulary.items()},
        },
    )
    identity, earlier = image_fingerprints(stored, options.orientation if options.kind == "images" else "stored")
    return DataBundle(
        name="parquet",
        spec=source.spec,
        train=source.training_split(train, options),
        validation=held_out,
        test=source.split(test, False) if located.test else held_out,
        fingerprint=identity,
        files={**vocabulary, **({} if classes is None else classes.files)},
        notes=(*(() if classes is None else classes.notes), *source.notes, *_merged_targets(files, options, targets)),
        listing=FileListing.of(names, contents, [file.sha256 for file in files]),
        earlier=earlier,
    )


def _merged_targets(files: Sequence[ParquetFile], options: ParquetOptions, targets: Targets | None) -> Iterator[str]:
    """A line if float32 merges values of the target, which are numbers."""
    name = options.target
    is_value = targets is not None and targets.classes is None
    if name is not None and is_value and is_number(column_type(files, name, setting="target")):
        yield from merged_values(files, [name])


def _counts(files: Sequence[ParquetFile], sizes: Sequence[int]) -> tuple[int, int, int]:
    """Rows of the files of train, validation and test, of which there are as many as `sizes` says."""
    rows = [file.metadata.num_rows for file in files]
    ends = np.cumsum(sizes)
    train, validation, test = (sum(rows[end - size : end]) for size, end in zip(sizes, ends, strict=True))
    for name, size, count in zip(("train", "validation", "test"), sizes, (train, validation, test), strict=True):
        if size and not count:
            raise DataError(
                f"the {size} files of the {name} split have no rows", remedy="add rows, or remove the files"
            )
    return train, validation, test


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The rows of all files.

    Attributes:
        spec: their shape.
        split: makes a split of some of them, with or without augmentation.
        group_of: the row group of each.
        notes: see `DataBundle.notes`.
    """

    spec: SampleSpec
    split: Callable[[NDArray[np.int64], bool], Split]
    group_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    notes: tuple[str, ...] = ()

    def training_split(self, rows: NDArray[np.int64], options: ParquetOptions) -> Split:
        """The split of these rows, ascending, in the order that the options say."""
        split = self.split(rows, True)
        if options.shuffle == "random":
            return split
        return WindowedSplit(split, groups=self.group_of(rows), window=options.window)


def _images(files: Sequence[ParquetFile], options: ParquetOptions, targets: Targets | None) -> _Source:
    assert targets is not None, "validated: only tokens need no target"
    (name,) = options.inputs
    kind = column_type(files, name, setting="inputs")
    if not is_encoded(kind):
        raise _wrong_type(name, kind, "a column of bytes, or a struct with a field `bytes`")
    groups = _row_groups(files, options, lambda table: encoded(table.column(name), name))

    decoder = ImageDecoder(side=options.image_size, orientation=options.orientation)

    def split(rows: NDArray[np.int64], augments: bool) -> Split:  # noqa: FBT001 - of `_Source`
        return ParquetImageSplit(groups, rows, targets.values, decoder=decoder, augments=augments)

    shape = (3, options.image_size, options.image_size)
    return _Source(spec=SampleSpec(shape=shape, outputs=targets.outputs), split=split, group_of=groups.group_of)


def _features(files: Sequence[ParquetFile], options: ParquetOptions, targets: Targets | None) -> _Source:
    assert targets is not None, "validated: only tokens need no target"
    names = options.inputs
    kinds = {name: column_type(files, name, setting="inputs") for name in names}
    length = list_length(files, names[0]) if len(names) == 1 and is_list(kinds[names[0]]) else 0
    for name, kind in kinds.items():
        if not length and not is_number(kind):
            raise _wrong_type(name, kind, "columns of one number, or a single column of lists of numbers")

    def decode(table: pa.Table) -> NDArray[np.generic]:
        columns = [numbers(table.column(name), name, length=length) for name in names]
        return np.asarray(columns[0] if length else np.stack(columns, axis=1), dtype=np.float32)

    spec = SampleSpec(shape=(length or len(names),), outputs=targets.outputs)
    source = _of_numbers(files, options, decode, targets=targets, spec=spec)
    return source if length else replace(source, notes=tuple(merged_values(files, names)))


def _texts(files: Sequence[ParquetFile], options: ParquetOptions, targets: Targets | None) -> _Source:
    (name,), vocabulary = options.inputs, options.vocabulary
    assert vocabulary is not None, "validated: tokens have a vocabulary"
    kind = column_type(files, name, setting="inputs")
    if not is_list(kind) or not pa.types.is_integer(kind.value_type):
        raise _wrong_type(name, kind, "a column of lists of integers")
    length = list_length(files, name)
    if length < _LEAST_TOKENS:
        raise DataError(
            f"the lists of column {name} have {length} tokens", remedy=f"write at least {_LEAST_TOKENS} in each row"
        )

    def decode(table: pa.Table) -> NDArray[np.generic]:
        return _tokens(numbers(table.column(name), name, length=length), name, vocabulary)

    spec = (
        SampleSpec(shape=(length - 1,), outputs=vocabulary, vocabulary=vocabulary, is_sequence=True)
        if targets is None
        else SampleSpec(shape=(length,), outputs=targets.outputs, vocabulary=vocabulary)
    )
    return _of_numbers(files, options, decode, targets=targets, spec=spec)


_SOURCES = {"features": _features, "tokens": _texts, "images": _images}


def _of_numbers(
    files: Sequence[ParquetFile],
    options: ParquetOptions,
    decode: Callable[[pa.Table], NDArray[np.generic]],
    *,
    targets: Targets | None,
    spec: SampleSpec,
) -> _Source:
    groups = _row_groups(files, options, decode)
    values = None if targets is None else targets.values
    return _Source(
        spec=spec, split=lambda rows, _augments: ParquetSplit(groups, rows, values), group_of=groups.group_of
    )


def _row_groups(
    files: Sequence[ParquetFile], options: ParquetOptions, decode: Callable[[pa.Table], Values]
) -> RowGroups[Values]:
    window = options.window if options.shuffle == "windowed" else 1
    return RowGroups(files, options.inputs, decode, cache_bytes=options.cache_mib * _MIB, cache_groups=window)


def _tokens(ids: NDArray[np.generic], name: str, vocabulary: int) -> NDArray[np.generic]:
    """The token ids in the smallest type that torch reads and that holds the vocabulary.

    Raises:
        ValueError: one is outside the vocabulary.
    """
    wide = ids.astype(np.int64, copy=False)
    outside = wide[(wide < 0) | (wide >= vocabulary)]
    if len(outside):
        raise ValueError(f"column {name} has the token {outside[0]}, outside data.options.vocabulary={vocabulary}")
    return wide.astype(np.int16 if vocabulary <= np.iinfo(np.int16).max else np.int32)


def _wrong_type(name: str, kind: pa.DataType, expected: str) -> SettingsError:
    return SettingsError(f"data.options.inputs: column {name} has the type {kind}", remedy=f"name {expected}")
