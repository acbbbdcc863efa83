"""A page of metrics in Prometheus's text format, whose values move."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import count

from observability.benchmarks.fleet.axes import Labels, buckets_of
from observability.benchmarks.fleet.values import WALKERS, Motion, Values, motion_of
from observability.metrics.external.model import ScrapedMetric

_GZIP = 31
"""`wbits` of zlib for gzip's format."""

_Line = tuple[str, Labels, Motion, int]
"""Name, labels, motion and walker of a series."""


class Page:
    """What one target serves; several targets can share a page.

    Attributes:
        series: number of its series.
    """

    def __init__(self, metrics: Iterable[tuple[ScrapedMetric, Iterable[Labels]]], values: Values) -> None:
        """Prepare the text.

        Args:
            metrics: each metric with the label sets of its series.
            values: of the fleet; gets the motions that the page needs.
        """
        self._values = values
        self._texts: list[bytes] = []
        self._moving: list[tuple[list[bytes], int]] = []
        self._served: tuple[int, bytes] | None = None
        self.series = 0
        walkers, pending = count(), ""
        for metric, label_sets in metrics:
            pending += f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
            for labels in label_sets:
                for name, all_labels, motion, walker in _lines(metric, labels, next(walkers) % WALKERS):
                    self.series += 1
                    pending += _described(name, all_labels)
                    if motion.kind == "constant":
                        pending += f"{motion.size:.16g}\n"
                        continue
                    values.add(motion)
                    self._texts.append(pending.encode())
                    self._moving.append((values.texts[motion], walker))
                    pending = "\n"
        self._end = pending.encode()

    def body(self) -> bytes:
        """The page with the present values, compressed with gzip."""
        if self._served is None or self._served[0] != self._values.tick:
            compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
            body = compressor.compress(self.text()) + compressor.flush()
            self._served = (self._values.tick, body)
        return self._served[1]

    def text(self) -> bytes:
        """The page with the present values."""
        parts: list[bytes] = []
        for text, (texts, walker) in zip(self._texts, self._moving, strict=True):
            parts += (text, texts[walker])
        return b"".join((*parts, self._end))


def _lines(metric: ScrapedMetric, labels: Labels, walker: int) -> Iterator[_Line]:
    """The series of a metric with these labels.

    The observations of a histogram are in two of its buckets, so the counts of the buckets never fall from one to the next.
    """
    motion = motion_of(metric, labels)
    if metric.kind != "histogram":
        yield metric.name, labels, motion, walker
        return
    bounds = buckets_of(metric)
    half = Motion(motion.kind, motion.size / 2)
    for number, bound in enumerate(bounds):
        place = 3 * number // len(bounds)
        moves = (Motion("constant", 0.0), half, motion)[place]
        yield f"{metric.name}_bucket", {**labels, "le": bound}, moves, walker
    yield f"{metric.name}_sum", labels, Motion("seconds", motion.size / 2), walker
    yield f"{metric.name}_count", labels, motion, walker


def _described(name: str, labels: Labels) -> str:
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{text}}} "
