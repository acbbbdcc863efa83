"""Parquet files: their footers, and a table of their row groups in which single rows are read.

A row group is the smallest part of a file that can be decoded. The last ones that were used are kept, within a limit of memory.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from training.errors import DataError

_TAIL = 8
"""Bytes at the end of a file: the length of the footer, little-endian, and the magic number PAR1 (Parquet's format, "File Format")."""


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """A Parquet file whose footer is read.

    Attributes:
        path: the file.
        metadata: the decoded footer.
        schema: the Arrow types of its columns.
        sha256: hash of the footer: the place, size and statistics of every column in every row group.
    """

    path: Path
    metadata: pq.FileMetaData
    schema: pa.Schema
    sha256: bytes

    @classmethod
    def open(cls, path: Path) -> ParquetFile:
        """Reads the footer.

        Raises:
            DataError: the file is not a Parquet file, or is truncated.
        """
        try:
            with pq.ParquetFile(path) as opened:
                metadata, schema = opened.metadata, opened.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{path} is damaged: {_first_line(error)}", remedy="write or copy the file again"
            ) from error
        with path.open("rb") as file:
            size = file.seek(-_TAIL, 2) + _TAIL
            length = int.from_bytes(file.read(4), "little")
            file.seek(size - _TAIL - length)
            return cls(path=path, metadata=metadata, schema=schema, sha256=hashlib.sha256(file.read(length)).digest())

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Reads columns of a row group.

        The file is open only meanwhile, and no thread of Arrow is used: loader processes are forks of the rank.

        Raises:
            DataError: the row group is damaged.
        """
        try:
            with pq.ParquetFile(self.path, metadata=self.metadata, pre_buffer=False) as opened:
                return opened.read_row_group(group, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"row group {group} of {self.path} cannot be read: {_first_line(error)}",
                remedy="write or copy the file again",
            ) from error


def open_all(paths: Sequence[Path]) -> list[ParquetFile]:
    """Reads the footers of files.

    Raises:
        DataError: one or more are damaged; the message has all of them.
    """
    opened, damaged = [], []
    for path in paths:
        try:
            opened.append(ParquetFile.open(path))
        except DataError as error:
            damaged.append(str(error).partition("\n")[0])
    if damaged:
        raise DataError("\n  ".join(damaged), remedy="write or copy these files again, or delete them")
    return opened


class Sized(Protocol):
    """Decoded columns of a row group; `nbytes` is their size in memory."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""


Values = TypeVar("Values", bound=Sized)


class RowGroups(Generic[Values]):
    """The rows of several files, in the order of the files, numbered from 0."""

    def __init__(
        self,
        files: Sequence[ParquetFile],
        columns: Sequence[str],
        decode: Callable[[pa.Table], Values],
        *,
        cache_bytes: int,
        cache_groups: int = 1,
    ) -> None:
        """Reads nothing yet.

        Args:
            files: the files; row groups of any size.
            columns: columns to read.
            decode: makes values of a row group's columns; raises ValueError for those that it refuses.
            cache_bytes: decoded row groups to keep, in bytes.
            cache_groups: as many of the last ones are kept whatever their size.
        """
        self._columns = columns
        self._decode = decode
        self._limit = cache_bytes
        self._least = cache_groups
        self._places = [(file, group) for file in files for group in range(file.metadata.num_row_groups)]
        sizes = [file.metadata.row_group(group).num_rows for file, group in self._places]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._kept: OrderedDict[int, Values] = OrderedDict()
        self._kept_bytes = 0
        self._refused: dict[int, DataError] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._starts[-1])

    def take(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], Values, NDArray[np.int64]]]:
        """Yields each row group that has some of the rows, so that it is decoded once.

        Yields:
            Positions within `rows`; the values of the row group; and the numbers of these rows within it.

        Raises:
            DataError: a row group is damaged, or `decode` refuses it.
        """
        groups = self.group_of(rows)
        # First those that are kept, because the others may take their place; last those that the next rows are likely to be in.
        found, from_end = np.unique(groups[::-1], return_index=True)
        by_last_row = found[np.argsort(-from_end)].tolist()
        for group in sorted(by_last_row, key=lambda one: one not in self._kept):
            positions = np.flatnonzero(groups == group)
            yield positions, self._values(group), rows[positions] - self._starts[group]

    def group_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the row group of each row, counted from 0 over all files."""
        return (np.searchsorted(self._starts, rows, side="right") - 1).astype(np.int64, copy=False)

    def __getstate__(self) -> dict[str, object]:
        """Without the decoded row groups, which another process does not need."""
        return {**self.__dict__, "_kept": OrderedDict(), "_kept_bytes": 0, "_refused": {}}

    def place(self, row: int) -> str:
        """Where a row is, for errors."""
        group = int(self.group_of(np.array(row)))
        file, number = self._places[group]
        return f"in row {row - self._starts[group]} of row group {number} of {file.path}"

    def _values(self, group: int) -> Values:
        if group in self._kept:
            self._kept.move_to_end(group)
            return self._kept[group]
        if group in self._refused:  # not decoded again for each of its rows
            raise self._refused[group].with_traceback(None)
        try:
            values = self._decoded(group)
        except DataError as error:
            self._refused[group] = error
            raise
        self._kept[group] = values
        self._kept_bytes += values.nbytes
        while self._kept_bytes > self._limit and len(self._kept) > self._least:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.nbytes
        return values

    def _decoded(self, group: int) -> Values:
        file, number = self._places[group]
        try:
            return self._decode(file.read(number, self._columns))
        except ValueError as error:
            raise DataError(
                f"row group {number} of {file.path}: {error}", remedy="correct the data and write the file again"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
