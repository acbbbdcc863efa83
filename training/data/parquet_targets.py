"""The column of the targets of Parquet files: classes or values, all of them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from training.data.classes import classes_file
from training.data.parquet_columns import column_type, is_list, is_number, is_text, list_length, numbers, refuse_nulls
from training.data.parquet_files import ParquetFile
from training.errors import DataError, SettingsError


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The targets of all rows, in the order of the files.

    Attributes:
        values: int64 classes, shape (n,), or float32 values, shape (n, outputs).
        outputs: number of classes, or of values.
        classes: names of the classes; empty if they are numbers, or the targets are values.
    """

    values: NDArray[np.int64] | NDArray[np.float32]
    outputs: int
    classes: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, bytes]:
        """The names of the classes, see `DataBundle.files`; empty if the targets are values."""
        return classes_file(self.classes, count=self.outputs) if self.values.dtype == np.int64 else {}

    @property
    def strata(self) -> NDArray[np.int64]:
        """The class of each row, for a stratified hold-out; 0 for values."""
        is_class = self.values.dtype == np.int64
        return self.values.astype(np.int64, copy=False) if is_class else np.zeros(len(self.values), dtype=np.int64)


def read_targets(files: Sequence[ParquetFile], name: str, *, train: int) -> Targets:
    """Reads the column of the targets.

    Integers and booleans are classes, counted from 0. Strings are classes too, numbered in the order of the names in
    the training split.

    Args:
        files: the files of all splits.
        name: the column.
        train: number of files, the first ones, that are the training split's.

    Raises:
        SettingsError: there is no such column, or its type is none of a target.
        DataError: a target is null or negative, a class is not in the training split, or a file is damaged.
    """
    kind = column_type(files, name, setting="target")
    if is_text(kind):
        return _named_classes([_strings(file, name) for file in files], name, train=train)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _numbered_classes(_read_numbers(files, name, 0).astype(np.int64, copy=False), name)
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


def _numbered_classes(labels: NDArray[np.int64], name: str) -> Targets:
    if len(labels) and labels.min() < 0:
        raise DataError(f"column {name} has the class {labels.min()}", remedy="count the classes from 0")
    return Targets(values=labels, outputs=int(labels.max(initial=0)) + 1)


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
            raise DataError(
                f"column {name} has classes that are not in the training split: {', '.join(unknown[:10])}",
                remedy="correct them, or add samples of these classes to the training split",
            )
        labels.append(found.to_numpy().astype(np.int64))
    return Targets(values=np.concatenate(labels), outputs=len(classes), classes=tuple(classes.to_pylist()))
