"""The column of the targets of Parquet files: classes or values, all of them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from training.data.classes import Classes, number_classes, unknown_classes
from training.data.options import TargetKind
from training.data.parquet_columns import (
    column_type,
    is_list,
    is_number,
    is_text,
    list_length,
    numbers,
    plain_type,
    refuse_nulls,
)
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


def read_targets(files: Sequence[ParquetFile], name: str, *, train: int, kind: TargetKind | None = None) -> Targets:
    """Reads the column of the targets.

    Classes are integers, booleans, strings, or floats that are whole numbers (`training.data.classes.number_classes`); values are
    numbers, or lists of them.

    Args:
        files: the files of all splits.
        name: the column.
        train: number of files, the first ones, that are the training split's.
        kind: what the targets are; None: floats and lists are values, and everything else is a class.

    Raises:
        SettingsError: there is no such column, or its type is none of a target.
        DataError: a target is null, a class is not in the training split, or a file is damaged.
    """
    found = column_type(files, name, setting="target")
    plain = plain_type(found)
    is_whole = pa.types.is_integer(plain) or pa.types.is_boolean(plain)
    wanted = kind or ("classes" if is_whole or is_text(found) else "values")
    if wanted == "classes" and is_text(found):
        return _named_classes([_strings(file, name) for file in files], name, train=train)
    if wanted == "classes" and (is_whole or is_number(found)):
        labels = _whole(_read_numbers(files, name, 0), name)
        rows = sum(file.metadata.num_rows for file in files[:train])
        return Targets.of(number_classes(labels, train=rows, what=f"column {name}"))
    if wanted == "values" and (is_whole or is_number(found) or is_list(found)):
        length = list_length(files, name) if is_list(found) else 0
        values = _read_numbers(files, name, length).astype(np.float32).reshape(-1, length or 1)
        return Targets(values=values, outputs=values.shape[1])
    raise SettingsError(
        f"data.options.target={name} has the type {found}, which are no {wanted}",
        remedy={
            "classes": "choose a column of integers or strings, or an objective of values, such as objective.name=regression",
            "values": "choose a column of numbers, or of lists of them, or objective.name=classification",
        }[wanted],
    )


def _whole(labels: NDArray[np.generic], name: str) -> NDArray[np.int64]:
    """Numbers of classes, which pandas writes as floats where a column once had gaps."""
    with np.errstate(invalid="ignore"):  # NaN is found below
        whole = labels.astype(np.int64)
    if (parts := np.flatnonzero(whole != labels)).size:
        raise DataError(
            f"column {name} has the value {labels[parts[0]]}, which is no class",
            remedy="write classes as integers or strings, or choose an objective of values, such as objective.name=regression",
        )
    return whole


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
