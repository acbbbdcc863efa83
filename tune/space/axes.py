"""The kinds of axes, each a set of values of one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal

from infra.spec.yaml_text import inline
from training.config.schema import OptionValue

Values = Mapping[str, OptionValue]
"""The settings of a trial that the search has chosen, by key; only of the axes that apply."""


@dataclass(frozen=True)
class Condition:
    """Another axis and the values of it for which an axis applies."""

    key: str
    values: tuple[OptionValue, ...]

    @classmethod
    def of(cls, key: str, value: OptionValue | tuple[OptionValue, ...]) -> Condition:
        """The condition from the file's form: one value, or several.

        Raises:
            ValueError: there is no value.
        """
        if value == ():
            raise ValueError(f"when.{key}=[] never holds; name at least one value")
        return cls(key, value if isinstance(value, tuple) else (value,))

    def holds(self, values: Values) -> bool:
        """Whether it holds; a condition on an axis that does not apply does not."""
        return self.key in values and any(is_same(values[self.key], one) for one in self.values)


@dataclass(frozen=True)
class Constant:
    """One value for every trial."""

    value: OptionValue
    _: KW_ONLY
    when: tuple[Condition, ...] = ()

    def grid(self) -> Sequence[OptionValue]:
        """All values."""
        return (self.value,)

    def clip(self, value: OptionValue) -> OptionValue:
        """The value."""
        del value
        return self.value

    @property
    def extremes(self) -> Sequence[OptionValue]:
        """The values to check against the rules of a setting."""
        return self.grid()


@dataclass(frozen=True)
class Choice:
    """A closed set of values."""

    values: tuple[OptionValue, ...]
    _: KW_ONLY
    when: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("choice=[] has no value; list at least one")
        for number, value in enumerate(self.values):
            if any(is_same(value, other) for other in self.values[:number]):
                raise ValueError(f"choice has {inline(value)} twice; list each value once")

    def grid(self) -> Sequence[OptionValue]:
        """All values."""
        return self.values

    def clip(self, value: OptionValue) -> OptionValue:
        """`value` if it is one of them, else the first."""
        return next((one for one in self.values if is_same(one, value)), self.values[0])

    @property
    def extremes(self) -> Sequence[OptionValue]:
        """The values to check against the rules of a setting."""
        return self.values


@dataclass(frozen=True)
class Integers:
    """Whole numbers `low`, `low + step`, … up to `high`."""

    low: int
    high: int
    _: KW_ONLY
    step: int = 1
    is_log: bool = False
    when: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        _check_order(self.low, self.high, self.step)
        if self.is_log and self.low < 1:
            raise ValueError(f"the lowest value of a logarithmic axis must be at least 1, got {self.low}")
        if self.is_log and self.step != 1:
            raise ValueError(f"step={self.step} and log=true exclude each other")

    def grid(self) -> Sequence[int]:
        """All values, in order."""
        return range(self.low, self.high + 1, self.step)

    def clip(self, value: OptionValue) -> int:
        """The nearest value."""
        assert isinstance(value, int | float)
        steps = round((value - self.low) / self.step)
        return self.low + self.step * min(max(steps, 0), (self.high - self.low) // self.step)

    @property
    def extremes(self) -> Sequence[OptionValue]:
        """The values to check against the rules of a setting; `high` only if the steps reach it."""
        return (self.low, self.grid()[-1])


@dataclass(frozen=True)
class Continuous:
    """Real numbers from `low` to `high`; with a step only `low`, `low + step` and so on."""

    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    is_log: bool = False
    when: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        _check_order(self.low, self.high, self.step)
        if self.is_log and self.low <= 0:
            raise ValueError(f"the lowest value of a logarithmic axis must be greater than 0, got {self.low}")

    def grid(self) -> Sequence[float]:
        """All values, in order.

        Raises:
            ValueError: there is no step, so there is no end of values.
        """
        if self.step is None:
            raise ValueError("a grid needs a finite number of values; give uniform a step, or list them in choice")
        return tuple(self.at(number) for number in range(self.steps + 1))

    def clip(self, value: OptionValue) -> float:
        """The nearest value."""
        assert isinstance(value, int | float)
        if self.step is None:
            return min(max(float(value), self.low), self.high)
        return self.at(min(max(round((value - self.low) / self.step), 0), self.steps))

    @property
    def extremes(self) -> Sequence[OptionValue]:
        """The values to check against the rules of a setting; `high` only if the steps reach it."""
        return (self.low, self.high if self.step is None else self.at(self.steps))

    @property
    def steps(self) -> int:
        """Steps from the lowest to the highest value, of an axis with a step."""
        return int((_exact(self.high) - _exact(self.low)) // _exact(self.step))

    def at(self, number: int) -> float:
        """The value after so many steps, as a person would write it: 0.3 rather than 0.30000000000000004."""
        return float(_exact(self.low) + number * _exact(self.step))


Axis = Constant | Choice | Integers | Continuous


def is_same(left: OptionValue, right: OptionValue) -> bool:
    """Whether two values are equal, where true is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def has_value(axis: Axis, value: OptionValue) -> bool:
    """Whether `value` is one of the axis's."""
    if isinstance(axis, Integers | Continuous) and not isinstance(value, int | float):
        return False
    return is_same(axis.clip(value), value)


def _exact(number: float | None) -> Decimal:
    """The number as it is written, of which a binary fraction is only the nearest."""
    assert number is not None
    return Decimal(repr(number))


def _check_order(low: float, high: float, step: float | None) -> None:
    """Refuse bounds that hold fewer than two values."""
    if low >= high:
        raise ValueError(f"the lowest value {low} must be smaller than the highest, {high}")
    if step is not None and _exact(step) > _exact(high) - _exact(low):
        raise ValueError(f"step={step} is longer than the range from {low} to {high}")
