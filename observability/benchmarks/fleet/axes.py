"""Label sets of a metric: which combinations of label values its series have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from observability.metrics.external.model import ScrapedMetric
from observability.metrics.inventory import INVENTORY

Labels = Mapping[str, str]

_BUCKETS = {f"ray_{spec.name}": spec.buckets for spec in INVENTORY if spec.buckets}
_OTHER_BUCKETS = (1.0, 2.5, *(5.0 * 2**power for power in range(12)))
"""Of Kueue's histograms: 14, from 1 s to 10,240 s."""


@dataclass(frozen=True)
class Axis:
    """Labels whose values go together: GPU 3 is always the device nvidia3.

    Attributes:
        labels: names.
        rows: combinations of their values that exist.
    """

    labels: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    @classmethod
    def of(cls, label: str, values: Iterable[object]) -> Axis:
        """An axis of one label."""
        return cls((label,), [(str(value),) for value in values])

    def project(self, labels: Iterable[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Those of its labels that are wanted, and the different combinations of their values."""
        wanted = [index for index, label in enumerate(self.labels) if label in set(labels)]
        rows = dict.fromkeys(tuple(row[index] for index in wanted) for row in self.rows)
        return tuple(self.labels[index] for index in wanted), list(rows)


def label_sets(labels: Sequence[str], axes: Sequence[Axis]) -> Iterator[Labels]:
    """Every combination of the values that the axes have for some labels.

    Raises:
        LookupError: no axis has one of the labels.
    """
    parts = [(names, rows) for names, rows in (axis.project(labels) for axis in axes) if names]
    covered = [name for names, _ in parts for name in names]
    if missing := sorted(set(labels) - set(covered)):
        raise LookupError(f"no values for the label {missing[0]!r}: the simulated exporter needs an axis for it")
    for rows in product(*(rows for _, rows in parts)):
        yield dict(zip(covered, (value for row in rows for value in row), strict=True))


def buckets_of(metric: ScrapedMetric) -> tuple[str, ...]:
    """Values of `le` of a histogram's buckets, ascending, with infinity."""
    return (*(repr(bound) for bound in _BUCKETS.get(metric.name, _OTHER_BUCKETS)), "+Inf")
