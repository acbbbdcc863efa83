"""An axis of a search space as the file has it.

search:
  space:
    optimizer.learning_rate: {log_uniform: [1.0e-4, 1.0e-1]}
    optimizer.weight_decay: {uniform: [0, 0.1], step: 0.01}
    optimizer.name: {choice: [sgd, adamw]}
    optimizer.momentum: {uniform: [0.5, 0.99], when: {optimizer.name: sgd}}
    model.options.width: {integer: [8, 64], step: 8}
    schedule.name: one_cycle
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from infra.spec.section import Section
from training.config.schema import OptionValue
from tune.space.axes import Axis, Choice, Condition, Constant, Continuous, Integers

_FORMS = ("uniform", "log_uniform", "integer", "choice", "value")


class AxisSettings(Section):
    """One axis; exactly one of its first five keys is given."""

    uniform: tuple[float, float] | None = Field(None, description="Lowest and highest value, all equally likely.")
    log_uniform: tuple[PositiveFloat, PositiveFloat] | None = Field(
        None, description="Lowest and highest value, all orders of magnitude equally likely."
    )
    integer: tuple[int, int] | None = Field(None, description="Lowest and highest whole number, both included.")
    choice: tuple[OptionValue, ...] | None = Field(None, description="The values to choose from.")
    value: OptionValue = Field(None, description="The only value; a bare value instead of a mapping means the same.")
    step: PositiveFloat | None = Field(None, description="Distance between neighbouring values (uniform, integer).")
    log: bool = Field(False, description="All orders of magnitude are equally likely (integer).")
    when: dict[str, bool | int | float | str | tuple[OptionValue, ...] | None] = Field(
        default_factory=dict,
        description="Other axes, each with the value, or list of values, for which this axis applies.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> AxisSettings:
        given = [name for name in _FORMS if name in self.model_fields_set]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none of them"
            raise ValueError(f"an axis needs exactly one of {', '.join(_FORMS)}; {found}")
        [form] = given
        if form != "value" and getattr(self, form) is None:
            raise ValueError(f"{form} must not be null; write choice: [null, …] to try a setting without a value")
        if self.step is not None and form not in {"uniform", "integer"}:
            raise ValueError(f"step={self.step:g} belongs to uniform or integer, not to {form}")
        if self.log and form != "integer":
            raise ValueError(f"log=true belongs to integer, not to {form}; write log_uniform for a real number")
        self.axis()
        return self

    @classmethod
    def recorded(cls, axis: object) -> AxisSettings:
        """The axis from a log, which has its defaults too: every form, all but one of them null."""
        given = _as_mapping(axis)
        assert isinstance(given, Mapping | AxisSettings)
        if isinstance(given, AxisSettings):
            return given
        known = {key: value for key, value in given.items() if value is not None}
        return cls.model_validate(known if known.keys() & set(_FORMS) else {**known, "value": None})

    def axis(self) -> Axis:
        """The axis.

        Raises:
            ValueError: its bounds, step or choices make no sense.
        """
        when = tuple(Condition.of(key, value) for key, value in self.when.items())
        if self.uniform is not None:
            return Continuous(*self.uniform, step=self.step, when=when)
        if self.log_uniform is not None:
            return Continuous(*self.log_uniform, is_log=True, when=when)
        if self.integer is not None:
            return Integers(*self.integer, step=_whole(self.step), is_log=self.log, when=when)
        if self.choice is not None:
            return Choice(self.choice, when=when)
        return Constant(self.value, when=when)


def _whole(step: float | None) -> int:
    if step is None:
        return 1
    if step != int(step):
        raise ValueError(f"step={step:g} of an integer axis must be a whole number")
    return int(step)


def _as_mapping(axis: object) -> object:
    return axis if isinstance(axis, Mapping | AxisSettings) else {"value": axis}


SpaceSettings = dict[str, Annotated[AxisSettings, BeforeValidator(_as_mapping)]]
"""The axes by the setting that each varies."""
