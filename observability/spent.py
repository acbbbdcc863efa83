"""Amounts of wall time, and what the machines cost meanwhile; and groups of steps that remember theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from observability.time_classes import TimeClass

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds, and US dollars; the dollars are 0 where no price is known."""

    seconds: float = 0.0
    dollars: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.dollars + other.dollars)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.seconds - other.seconds, self.dollars - other.dollars)

    def part(self, share: float) -> Spent:
        """A share of it, from 0 to 1."""
        return Spent(self.seconds * share, self.dollars * share)


NOTHING = Spent()

SpentByClass = dict[TimeClass, Spent]


@dataclass(kw_only=True, slots=True)
class StepGroup:
    """What the time of consecutive steps, and of what followed each of them, was counted as."""

    first: int
    last: int
    spent: SpentByClass

    def add(self, name: TimeClass, spent: Spent) -> None:
        """Add what followed the steps."""
        self.spent[name] = self.spent.get(name, NOTHING) + spent

    def merged(self, *newer: StepGroup) -> StepGroup:
        """These steps and the ones after them."""
        whole = StepGroup(first=self.first, last=self.last, spent=dict(self.spent))
        for group in newer:
            whole.last = group.last
            for name, spent in group.spent.items():
                whole.add(name, spent)
        return whole

    def up_to(self, step: int) -> StepGroup:
        """The steps up to this one, with their share of the time."""
        share = (step - self.first + 1) / (self.last - self.first + 1)
        return StepGroup(
            first=self.first, last=step, spent={name: spent.part(share) for name, spent in self.spent.items()}
        )


def net(counted: Mapping[TimeClass, float], repeated: Mapping[TimeClass, float]) -> dict[TimeClass, float]:
    """Amounts of each class, of which those that a restart repeated are lost."""
    left = {name: max(0.0, amount - repeated.get(name, 0.0)) for name, amount in counted.items()}
    left["lost"] += sum(repeated.values())
    return left
