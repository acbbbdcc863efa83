"""The column of the targets of Parquet files: classes or values, all of them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from training.data.classes import Classes, number_classes, unknown_classes
from training.data.parquet_columns import column_type, is_list, is_number, is_text, list_length, numbers, refuse_nulls
from training.data.parquet_files import ParquetFile
from training.errors import DataError, SettingsError


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The targets of all rows, in the order of the files.

    Attributes:
        values: int64 classes, shape (n,), or float32 values, shape (n, outputs).
        outputs: number of classes, or of values.
        classes: None if the targets are values.
    """

    values: NDArray[np.int64] | NDArray[np.float32]
    outputs: int
    classes: Classes | None = None

    @classmethod
    def of(cls, classes: Classes) -> Targets:
        """Targets that are classes."""
        return cls(values=classes.numbers, outputs=classes.count, classes=classes)

    @property
    def strata(self) -> NDArray[np.int64]:
        """The class of each row, for a stratified hold-out; 0 for values."""
        return np.zeros(len(self.values), dtype=np.int64) if self.classes is None else self.classes.numbers


def read_targets(files: Sequence[ParquetFile], name: str, *, train: int) -> Targets:
    """Reads the column of the targets.

    Integers, booleans and strings are classes (`training.data.classes.number_classes`).

    Args:
        files: the files of all splits.
        name: the column.
        train: number of files, the first ones, that are the training split's.

    Raises:
        SettingsError: there is no such column, or its type is none of a target.
        DataError: a target is null, a class is not in the training split, or a file is damaged.
    """
    kind = column_type(files, name, setting="target")
    if is_text(kind):
        return _named_classes([_strings(file, name) for file in files], name, train=train)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        labels = _read_numbers(files, name, 0).astype(np.int64, copy=False)
        rows = sum(file.metadata.num_rows for file in files[:train])
        return Targets.of(number_classes(labels, train=rows, what=f"column {name}"))
    if is_list(kind) or is_number(kind):
        length = list_length(files, name) if is_list(kind) else 0
        values = _read_numbers(files, name, length).astype(np.float32).reshape(-1, length or 1)
        return Targets(values=values, outputs=values.shape[1])
    raise SettingsError(
        f"data.options.target={name} has the type {kind}",
        remedy="choose a column of integers, strings, floats, or lists of floats",
    )


def _read(file: ParquetFile, name: str) -> pa.ChunkedArray:
    groups = [file.read(group, [name]).column(name) for group in range(file.metadata.num_row_groups)]
    kind = file.schema.field(name).type
    return pa.chunked_array([chunk for group in groups for chunk in group.chunks], type=kind)


def _read_numbers(files: Sequence[ParquetFile], name: str, length: int) -> NDArray[np.generic]:
    parts = []
    for file in files:
        try:
            parts.append(numbers(_read(file, name), name, length=length))
        except ValueError as error:
            raise DataError(f"{file.path}: {error}", remedy="correct the data and write the file again") from error
    return np.concatenate(parts)


def _strings(file: ParquetFile, name: str) -> pa.ChunkedArray:
    column = _read(file, name)
    try:
        refuse_nulls(column, name)
    except ValueError as error:
        raise DataError(f"{file.path}: {error}", remedy="fill the nulls in, or drop these rows") from error
    return column.cast(pa.large_string())


def _named_classes(columns: Sequence[pa.ChunkedArray], name: str, *, train: int) -> Targets:
    """Numbers the strings of files, of which the first `train` are those of the training split."""
    distinct = {one for column in columns[:train] for one in pc.unique(column).to_pylist()}
    classes = pa.array(sorted(distinct), type=pa.large_string())
    labels = []
    for column in columns:
        found = pc.index_in(column, value_set=classes)
        if found.null_count:
            unknown = sorted(set(pc.unique(column).to_pylist()) - distinct)
            raise unknown_classes(unknown, what=f"column {name}")
        labels.append(found.to_numpy().astype(np.int64))
    return Targets.of(
        Classes(numbers=np.concatenate(labels), count=len(classes), names=tuple(map(str, classes.to_pylist())))
    )
