"""A search space: axes in the order in which they are drawn, and how a trial's values are drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from infra.spec.section import did_you_mean
from infra.spec.yaml_text import inline
from training.config.schema import OptionValue
from training.errors import SettingsError
from tune.space.axes import Axis, Choice, Constant, Continuous, Integers, Values, has_value
from tune.space.settings import SpaceSettings


class Draw(Protocol):
    """Draws the value of one axis: a random generator, or a searcher that learns."""

    def __call__(self, key: str, axis: Choice | Integers | Continuous, /) -> OptionValue:
        """A value of the axis."""
        ...


@dataclass(frozen=True)
class Space:
    """The axes by the setting that each varies; an axis stands after those that it depends on."""

    axes: Mapping[str, Axis]

    @classmethod
    def of(cls, settings: SpaceSettings) -> Space:
        """The space from the file's form.

        Raises:
            SettingsError: a condition names no axis or a value that its axis never has, or an axis can never apply.
        """
        axes = {key: axis.axis() for key, axis in settings.items()}
        for key, axis in axes.items():
            _check_conditions(key, axis, axes)
        try:
            order = TopologicalSorter(
                {key: [one.key for one in axis.when] for key, axis in axes.items()}
            ).static_order()
            space = cls({key: axes[key] for key in order})
        except CycleError as error:
            first, *others = error.args[1]
            raise SettingsError(
                f"search.space.{first}.when: the conditions of these axes need each other: {' -> '.join([first, *others])}",
                remedy="remove one of the conditions",
            ) from None
        for key in axes:
            space.needs(key)
        return space

    @property
    def fixed(self) -> dict[str, OptionValue]:
        """The values that every trial has: those of unconditional axes with only one."""
        single = {key: axis for key, axis in self.axes.items() if isinstance(axis, Constant | Choice) and not axis.when}
        return {key: axis.grid()[0] for key, axis in single.items() if len(axis.grid()) == 1}

    def needs(self, key: str) -> dict[str, tuple[OptionValue, ...]]:
        """The axes that an axis depends on, also through others, each with its values for which the axis applies.

        Raises:
            SettingsError: no combination of values lets the axis apply.
        """
        needed: dict[str, tuple[OptionValue, ...]] = {}
        waiting = [key]
        while waiting:
            for one in self.axes[waiting.pop()].when:
                waiting.append(one.key)
                allowed = needed.get(one.key, one.values)
                needed[one.key] = tuple(value for value in allowed if one.holds({one.key: value}))
                if not needed[one.key]:
                    raise SettingsError(
                        f"search.space.{key}.when: never holds: {one.key} cannot be {_listed(allowed)} and "
                        f"{_listed(one.values)} in one trial",
                        remedy="correct the conditions of the axis, or of those that it depends on",
                    )
        return needed

    def check_is_finite(self) -> None:
        """Refuse an axis that has no end of values, of which there is no grid.

        Raises:
            SettingsError: names the axis.
        """
        for key, axis in self.axes.items():
            if isinstance(axis, Continuous) and axis.step is None:
                raise SettingsError(
                    f"search.space.{key}: algorithm=grid tries every value, and a real number has no end of them",
                    remedy="list its values in choice, or write uniform with a step",
                )

    def draw(self, draw: Draw) -> dict[str, OptionValue]:
        """The values of one trial, of the axes that apply."""
        values: dict[str, OptionValue] = {}
        for key, axis in self.axes.items():
            if _applies(axis, values):
                values[key] = axis.value if isinstance(axis, Constant) else draw(key, axis)
        return values

    def grid(self) -> Iterator[dict[str, OptionValue]]:
        """Every combination once; the last axis varies fastest.

        Raises:
            ValueError: an axis has no finite number of values.
        """
        yield from self._combinations(list(self.axes.items()), {})

    def _combinations(
        self, axes: list[tuple[str, Axis]], above: dict[str, OptionValue]
    ) -> Iterator[dict[str, OptionValue]]:
        if not axes:
            yield above
            return
        (key, axis), *rest = axes
        if not _applies(axis, above):
            yield from self._combinations(rest, above)
            return
        for value in axis.grid():
            yield from self._combinations(rest, {**above, key: value})

    def holds(self, values: Values) -> bool:
        """Whether these are values that a trial of this space can have."""
        applying = {key: axis for key, axis in self.axes.items() if _applies(axis, values)}
        return applying.keys() == values.keys() and all(has_value(axis, values[key]) for key, axis in applying.items())


class RandomDraw:
    """Draws independent values; equal seeds draw equal values."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for cryptography

    def __call__(self, key: str, axis: Choice | Integers | Continuous) -> OptionValue:
        """A value of the axis, each equally likely; of a logarithmic axis, each order of magnitude."""
        del key
        if isinstance(axis, Choice):
            return self._random.choice(axis.values)
        if isinstance(axis, Integers) and not axis.is_log:
            return self._random.choice(axis.grid())
        if axis.is_log:
            # Each whole number stands for the range that is rounded to it.
            margin = 0.5 if isinstance(axis, Integers) else 0.0
            low, high = math.log(axis.low - margin), math.log(axis.high + margin)
            return axis.clip(math.exp(self._random.uniform(low, high)))
        assert isinstance(axis, Continuous)
        if axis.step is None:
            return axis.clip(self._random.uniform(axis.low, axis.high))
        return axis.at(self._random.randint(0, axis.steps))


def _applies(axis: Axis, values: Values) -> bool:
    return all(condition.holds(values) for condition in axis.when)


def _check_conditions(key: str, axis: Axis, axes: Mapping[str, Axis]) -> None:
    for condition in axis.when:
        where = f"search.space.{key}.when.{condition.key}"
        if condition.key not in axes:
            meant = did_you_mean(condition.key, sorted(set(axes) - {key}))
            raise SettingsError(
                f"{where} = {_listed(condition.values)}: no such axis",
                remedy=meant or f"add {condition.key} to the axes, or remove the condition",
            )
        other = axes[condition.key]
        if isinstance(other, Continuous) and other.step is None:
            raise SettingsError(
                f"{where} = {_listed(condition.values)}: {condition.key} is a real number, which is almost never exactly that",
                remedy=f"list the values of {condition.key} in choice, or give it a step",
            )
        for value in condition.values:
            if not has_value(other, value):
                raise SettingsError(
                    f"{where} = {inline(value)}: {condition.key} never has this value",
                    remedy=f"values of {condition.key}: {_named(other)}",
                )


def _named(axis: Choice | Constant | Integers | Continuous) -> str:
    """The values of an axis for a message."""
    if isinstance(axis, Choice | Constant):
        return _listed(axis.grid())
    return f"{axis.low} to {axis.high}" + f" in steps of {axis.step}" * (axis.step != 1)


def _listed(values: Sequence[OptionValue]) -> str:
    return " or ".join(inline(value) for value in values)
