"""Columns whose values float32, in which features are trained, does not tell apart, such as times in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from training.data.parquet_columns import leaf_statistics, plain_type
from training.data.parquet_files import ParquetFile

_STEPS = 2**16
"""Least number of float32's steps between the smallest and the largest value of a column that is taken to be fine."""

_WHOLE = 2**24
"""Up to which float32 has every whole number."""

_KEPT = 0.9
"""Share of the distinct values that has to stay distinct."""


def merged_values(files: Sequence[ParquetFile], names: Sequence[str]) -> Iterator[str]:
    """A line for each column of which float32 merges more than a tenth of the distinct values in its first row group.

    Only a column is read whose footers say that a value is beyond the whole numbers that float32 has, or that its values lie close
    together, far from 0.

    Args:
        files: of the dataset, which has rows.
        names: columns of one number.
    """
    first = next(file for file in files if file.metadata.num_rows)
    for name in names:
        kind = plain_type(files[0].schema.field(name).type)
        if pa.types.is_floating(kind) and kind.bit_width <= 32:
            continue
        if not _is_at_risk(files, name):
            continue
        column = first.read(0, [name]).column(name).cast(kind)
        before = pc.count_distinct(column).as_py()
        after = pc.count_distinct(column.cast(pa.float64(), safe=False).cast(pa.float32(), safe=False)).as_py()
        if after < _KEPT * before:
            yield (
                f"column {name}: of {before:,} distinct values in the first row group of {first.path.name}, float32 leaves {after:,}; "
                "write the difference to the smallest value, or a coarser unit"
            )


def _is_at_risk(files: Sequence[ParquetFile], name: str) -> bool:
    """Whether a column has a large value, or few of float32's steps between its values, as far as the footers tell."""
    known = [
        found for file in files for found in leaf_statistics(file, name) if found is not None and found.has_min_max
    ]
    ends = [float(end) for found in known for end in (found.min, found.max)]
    if not ends or not np.isfinite(ends).all():
        return False
    largest = max(map(abs, ends))
    return largest > _WHOLE or bool(0 < (max(ends) - min(ends)) / np.spacing(np.float32(largest)) < _STEPS)
