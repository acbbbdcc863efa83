"""Other values near those of a trial, within the search space: the exploration of population based training.

Ray's own perturbation leaves the bounds of an axis, and knows no conditions (ray/tune/schedulers/pbt.py, `_explore`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from training.checkpoint.changes import is_changeable
from training.config.schema import OptionValue
from tune.space.axes import Choice, Continuous, Integers, Values, is_same
from tune.space.space import RandomDraw, Space


class Perturbation:
    """Draws the values that a trial goes on with from the checkpoint of a better one. Equal seeds draw equal values."""

    def __init__(self, space: Space, *, factors: tuple[float, float], resample: float, seed: str) -> None:
        """Prepare the draws.

        Args:
            space: the axes.
            factors: a number is multiplied by one of them.
            resample: probability that an axis is drawn anew instead.
            seed: of all draws.
        """
        self._space = space
        self._factors = factors
        self._resample = resample
        self._random = random.Random(seed)  # noqa: S311 - not for cryptography
        self._anew = RandomDraw(f"{seed}/anew")

    def __call__(self, donor: Values) -> dict[str, OptionValue]:
        """Values for the trial.

        Args:
            donor: values of the better trial.
        """
        return self._space.draw(partial(self._next, donor))

    def with_chosen(self, donor: Values, chosen: Mapping[str, float]) -> dict[str, OptionValue]:
        """The donor's values, but those that something else has chosen, moved into their axes."""

        def draw(key: str, axis: Choice | Integers | Continuous) -> OptionValue:
            if key in chosen:
                return axis.clip(chosen[key])
            return donor[key] if key in donor else self._anew(key, axis)

        return self._space.draw(draw)

    def _next(self, donor: Values, key: str, axis: Choice | Integers | Continuous) -> OptionValue:
        if key not in donor:  # its condition holds only with the new values
            return self._anew(key, axis)
        if not is_changeable(key):
            return donor[key]
        if self._random.random() < self._resample:
            return self._anew(key, axis)
        return self._neighbour(axis, donor[key]) if isinstance(axis, Choice) else self._scaled(axis, donor[key])

    def _neighbour(self, axis: Choice, value: OptionValue) -> OptionValue:
        place = next(index for index, one in enumerate(axis.values) if is_same(one, value))
        neighbours = [axis.values[index] for index in (place - 1, place + 1) if 0 <= index < len(axis.values)]
        return self._random.choice(neighbours) if neighbours else value

    def _scaled(self, axis: Integers | Continuous, value: OptionValue) -> OptionValue:
        assert isinstance(value, int | float)
        factor = self._random.choice(self._factors)
        scaled = axis.clip(value * factor)
        if scaled == value and axis.step is not None and factor != 1:
            # A factor smaller than a step would never move it.
            return axis.clip(value + (axis.step if factor > 1 else -axis.step))
        return scaled
