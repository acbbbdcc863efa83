"""Columns of Parquet files as arrays: which there are, whether they fit, and how they are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from training.data.parquet_files import ParquetFile
from training.errors import DataError, SettingsError

_EXACT_DIGITS = 15
"""Digits that float64 keeps in every number."""

_FEW = 30
"""Columns that an error lists."""


def column_type(files: Sequence[ParquetFile], name: str, *, setting: str) -> pa.DataType:
    """The type of a column, which is the same in all files and has no nulls, as far as the footers tell.

    Args:
        files: the dataset's files.
        name: name of the column.
        setting: the option that names it, for errors.

    Raises:
        SettingsError: a file has no such column, or several.
        DataError: its type differs between files, or it has nulls.
    """
    types: dict[pa.DataType, ParquetFile] = {}
    for file in files:
        if name not in file.schema.names:
            raise SettingsError(
                f"data.options.{setting}: {file.path} has no column {name}",
                remedy=f"its columns are {_listed(file.schema)}",
            )
        if (number := file.schema.names.count(name)) > 1:
            raise SettingsError(
                f"data.options.{setting}: {file.path} has {number} columns of the name {name}",
                remedy="write the file with a name for each column",
            )
        types.setdefault(file.schema.field(name).type, file)
        _refuse_counted_nulls(file, name)
    if len(types) > 1:
        places = ", ".join(f"{kind} in {file.path}" for kind, file in types.items())
        raise DataError(f"column {name} has several types: {places}", remedy="write all files with one schema")
    return next(iter(types))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type holds one number: an integer, a float, a decimal or a boolean, also as an entry of a dictionary."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(plain_type(kind)) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    """Whether a type holds a list of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in lists) and is_number(kind.value_type)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds one string, also as an entry of a dictionary."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(plain_type(kind)) for test in tests)


def is_encoded(kind: pa.DataType) -> bool:
    """Whether a type holds the bytes of a file, also as the field `bytes` of a struct, as Hugging Face's datasets write images."""
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and is_encoded(kind.field("bytes").type)
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(plain_type(kind)) for test in tests)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the entries of a dictionary, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def list_length(files: Sequence[ParquetFile], name: str) -> int:
    """The length of all lists of a column, from the footers alone.

    Raises:
        DataError: it differs.
    """
    lengths: dict[float, str] = {}
    for file in files:
        (leaf,) = _leaves(file, name)
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if group.num_rows:
                lengths.setdefault(group.column(leaf).num_values / group.num_rows, f"{file.path}, row group {number}")
    if len(lengths) != 1 or not next(iter(lengths)).is_integer():
        found = "; ".join(f"{length:g} on average in {place}" for length, place in list(lengths.items())[:5])
        raise DataError(
            f"the lists of column {name} have several lengths: {found or 'there are no rows'}",
            remedy="cut or pad them to one length",
        )
    return int(next(iter(lengths)))


def numbers(column: pa.ChunkedArray, name: str, *, length: int) -> NDArray[np.generic]:
    """Returns a column of numbers, shape (n,), or with `length` > 0 of lists of that length, shape (n, length).

    Raises:
        ValueError: it has a null, or a list of another length.
    """
    refuse_nulls(column, name)
    if not length:
        return np.asarray(_decoded(column).to_numpy())
    lengths = pc.list_value_length(column).to_numpy()
    if len(lengths) and (lengths.min() != length or lengths.max() != length):
        row = int(np.flatnonzero(lengths != length)[0])
        raise ValueError(f"the list of column {name} in row {row} has {lengths[row]} values, expected {length}")
    flat = pc.list_flatten(column)
    refuse_nulls(flat, name)
    return np.asarray(_decoded(flat).to_numpy()).reshape(-1, length)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of numbers without dictionaries and decimals, which NumPy has as objects."""
    plain = plain_type(column.type)
    if pa.types.is_decimal(plain) and plain.scale == 0 and plain.precision > _EXACT_DIGITS:
        try:
            return column.cast(pa.int64())  # exact, for identifiers
        except pa.ArrowInvalid:
            return column.cast(pa.float64())
    return column.cast(pa.float64() if pa.types.is_decimal(plain) else plain)


def encoded(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Returns the bytes of each row of a column of files.

    Raises:
        ValueError: it has a null.
    """
    refuse_nulls(column, name)
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
        refuse_nulls(column, f"{name}.bytes")
    return column.cast(pa.large_binary()).combine_chunks()


def refuse_nulls(column: pa.ChunkedArray, name: str) -> None:
    """Raises ValueError with the first row if a column has a null."""
    if column.null_count:
        row = pc.indices_nonzero(pc.is_null(column))[0].as_py()
        raise ValueError(f"column {name} has {column.null_count} nulls, the first in value {row}")


def _refuse_counted_nulls(file: ParquetFile, name: str) -> None:
    if pa.types.is_nested(file.schema.field(name).type):
        return  # a struct may have other fields, whose nulls are nobody's concern; lists are checked when they are read
    for number, statistics in enumerate(leaf_statistics(file, name)):
        if statistics is not None and statistics.has_null_count and statistics.null_count:
            raise DataError(
                f"column {name} has {statistics.null_count} nulls in row group {number} of {file.path}",
                remedy="fill the nulls in, or drop these rows",
            )


def leaf_statistics(file: ParquetFile, name: str) -> Iterator[pq.Statistics | None]:
    """What the footer says of a column of single values in each row group; None for one of which it says nothing."""
    (leaf,) = _leaves(file, name)
    for number in range(file.metadata.num_row_groups):
        yield file.metadata.row_group(number).column(leaf).statistics


def _leaves(file: ParquetFile, name: str) -> list[int]:
    """The numbers of the physical columns that hold a column; by their place, as a name may have dots, too."""
    place = file.schema.names.index(name)
    first = sum(_leaf_count(field.type) for field in list(file.schema)[:place])
    return list(range(first, first + _leaf_count(file.schema.field(place).type)))


def _leaf_count(kind: pa.DataType) -> int:
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return sum(_leaf_count(stored.field(number).type) for number in range(stored.num_fields)) or 1


def _listed(schema: pa.Schema) -> str:
    columns = [f"{field.name} ({field.type})" for field in schema]
    more = len(columns) - _FEW
    return ", ".join(columns[:_FEW]) + (f" and {more} more" if more > 0 else "")
