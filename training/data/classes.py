"""The classes of labelled samples: which output of the model stands for which label, and the file that says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.errors import DataError

CLASSES_FILE: Final = "classes.json"
"""A list of the names in the order of the model's outputs."""

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes of a dataset.

    Attributes:
        numbers: class of each sample, from 0, shape (n,).
        count: number of classes.
        names: what the samples call them, in the order of their numbers; empty if they are 0 to count - 1 there, too.
    """

    numbers: NDArray[np.int64]
    count: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no model can tell apart.

        Raises:
            DataError: there is one class.
        """
        if self.count == 1:
            raise DataError(
                f"all samples are of one class{', ' if self.names else ''}{''.join(self.names)}",
                remedy="add samples of other classes; or data.options names the wrong column or member",
            )

    @property
    def files(self) -> dict[str, bytes]:
        """What is kept with the run and its model, see `DataBundle.files`."""
        return classes_file(self.names, count=self.count)

    @property
    def notes(self) -> tuple[str, ...]:
        """A line of how they are numbered, if they have names."""
        if not self.names:
            return ()
        shown = ", ".join(f"{number}: {name}" for number, name in enumerate(self.names[:_SHOWN]))
        more = f" and {self.count - _SHOWN:,} more" if self.count > _SHOWN else ""
        return (f"{self.count:,} classes, by output of the model {shown}{more} ({CLASSES_FILE})",)


def number_classes(labels: NDArray[np.int64] | NDArray[np.str_], *, train: int, what: str) -> Classes:
    """Number the classes of samples.

    A class is its text: "01" and "1" are two. Whole numbers that are exactly 0 to n - 1 keep their number; others, such as identifiers
    or numbers from 1, get one in their order. So the model has an output for each class and no other.

    Args:
        labels: of all samples, shape (n,).
        train: how many, the first ones, are the training split's.
        what: the labels, for errors: `column label`.

    Raises:
        DataError: a class is negative, or not in the training split.
    """
    if labels.dtype == np.int64 and labels.min(initial=0) < 0:
        raise DataError(
            f"{what} has the class {labels.min()}",
            remedy="write classes as numbers from 0 or as names; leave samples without one out, which -1 often marks",
        )
    distinct, numbers = np.unique(labels, return_inverse=True)
    if labels.dtype == np.int64 and np.array_equal(distinct, np.arange(len(distinct))):
        return Classes(numbers=numbers.astype(np.int64), count=len(distinct))
    known = np.isin(np.arange(len(distinct)), numbers[:train])
    if not known.all():
        raise unknown_classes(list(map(str, distinct[~known])), what=what)
    return Classes(numbers=numbers.astype(np.int64), count=len(distinct), names=tuple(map(str, distinct)))


def unknown_classes(names: Sequence[str], *, what: str) -> DataError:
    """The error of classes that only other splits than the training split have."""
    return DataError(
        f"{what} has classes that are not in the training split: {', '.join(names[:_SHOWN])}",
        remedy="correct them, or add samples of these classes to the training split",
    )


def classes_file(names: Sequence[str], *, count: int) -> dict[str, bytes]:
    """The file of the names; numbers stand for classes that have none.

    Args:
        names: of all classes, or none.
        count: number of classes.
    """
    return {CLASSES_FILE: json.dumps(list(names) or list(map(str, range(count)))).encode()}
