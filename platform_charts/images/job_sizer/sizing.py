"""How many pods each elastic job should have; pure functions of the quota, the jobs that have it, and those that wait for it.

A job grows into what nobody uses, beside the jobs that wait. It gives pods back once that is enough for a waiting job: to a job of its
own queue any of them, to a job of another queue those that it has borrowed. What is beyond its largest size, because its user has limited
it, it gives back at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

Key = tuple[str, str]
"""A flavor and a resource."""

Amounts = Mapping[Key, Decimal]

_NOTHING = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Sized:
    """An elastic job that holds quota.

    Attributes:
        name: namespace and name.
        queue: its ClusterQueue.
        sizes: the numbers of worker pods that its run can use, ascending.
        pods: worker pods that Kueue has admitted.
        needs: what Kueue counts for one of them, without resources that it does not ask for.
        may_grow: its run is under way and all its pods are ready.
    """

    name: str
    queue: str
    sizes: Sequence[int]
    pods: int
    needs: Amounts
    may_grow: bool

    def within(self, pods: int) -> int:
        """The largest of its sizes of at most `pods`, or the smallest."""
        return max((size for size in self.sizes if size <= pods), default=self.sizes[0])


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A job that waits for quota.

    Attributes:
        name: namespace and name.
        queue: its ClusterQueue.
        order: what is smaller is admitted first.
        choices: what it asks for, for each group of pods that one flavor has to take: the flavors that may, with the amounts.
    """

    name: str
    queue: str
    order: tuple[int, str]
    choices: Sequence[Mapping[str, Mapping[str, Decimal]]]


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The quota of the cohort.

    Attributes:
        own: what each queue owns and does not use; negative where it borrows.
        idle: what nobody uses.
        limits: how much each queue may borrow, where that is limited.
    """

    own: Mapping[str, Amounts]
    idle: Amounts
    limits: Mapping[str, Amounts]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a job should have.

    Attributes:
        pods: number of worker pods.
        claims: names of the jobs that it gives pods back for.
    """

    pods: int
    claims: tuple[str, ...] = ()


class _Rest:
    """What is left of the quota, beside what is set aside for jobs that come first."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._of_queue: dict[tuple[str, Key], Decimal] = defaultdict(Decimal)
        self._of_all: dict[Key, Decimal] = defaultdict(Decimal)

    def left(self, queue: str, key: Key) -> Decimal:
        """What a queue can still use, borrowed or not."""
        idle = self._quota.idle.get(key, _NOTHING) - self._of_all[key]
        limit = self._quota.limits.get(queue, {}).get(key)
        if limit is None:
            return idle
        return min(idle, self._quota.own.get(queue, {}).get(key, _NOTHING) + limit - self._of_queue[queue, key])

    def borrowed(self, queue: str, key: Key) -> Decimal:
        """What a queue uses beyond what it owns."""
        return max(_NOTHING, self._of_queue[queue, key] - self._quota.own.get(queue, {}).get(key, _NOTHING))

    def set_aside(self, queue: str, amounts: Amounts) -> None:
        """Keep something for a job; negative amounts are given back by one."""
        for key, amount in amounts.items():
            self._of_queue[queue, key] += amount
            self._of_all[key] += amount


def targets(jobs: Sequence[Sized], claims: Iterable[Claim], quota: Quota) -> dict[str, Target]:
    """The number of pods that each job should have, by its name.

    Args:
        jobs: those that hold quota, the oldest first.
        claims: those that wait.
        quota: what is left.
    """
    made = {job.name: Target(pods=min(job.pods, job.within(job.pods))) for job in jobs}
    rest = _Rest(quota)
    for job in jobs:
        rest.set_aside(job.queue, _times(job.needs, made[job.name].pods - job.pods))
    for claim in sorted(claims, key=lambda one: one.order):
        wanted = _flavored(claim, rest)
        returned = _returned(claim, wanted, rest, [(job, made[job.name]) for job in jobs])
        if returned is None:
            continue  # it has to wait for others in any case
        for job in jobs:
            if job.name in returned:
                rest.set_aside(job.queue, _times(job.needs, returned[job.name].pods - made[job.name].pods))
        made.update(returned)
        rest.set_aside(claim.queue, wanted)
    for job in jobs:
        if job.may_grow and not made[job.name].claims:
            room = min((rest.left(job.queue, key) / amount for key, amount in job.needs.items()), default=_NOTHING)
            pods = job.within(job.pods + max(0, int(room.to_integral_value(ROUND_FLOOR))))
            if pods > job.pods:
                made[job.name] = Target(pods=pods)
                rest.set_aside(job.queue, _times(job.needs, pods - job.pods))
    return made


def _flavored(claim: Claim, rest: _Rest) -> dict[Key, Decimal]:
    """What a claim asks for, of the flavors that lack the least of it."""
    wanted: dict[Key, Decimal] = defaultdict(Decimal)
    for choice in claim.choices:
        amounts = [
            {(flavor, resource): amount for resource, amount in asked.items()} for flavor, asked in choice.items()
        ]
        best = min(amounts, key=lambda one: sum(_missing(claim.queue, one, rest).values()), default={})
        for key, amount in best.items():
            wanted[key] += amount
    return dict(wanted)


def _missing(queue: str, wanted: Amounts, rest: _Rest) -> dict[Key, Decimal]:
    """The parts of what is wanted that are not left."""
    left = {key: max(_NOTHING, rest.left(queue, key)) for key in wanted}
    return {key: amount - left[key] for key, amount in wanted.items() if amount > left[key]}


def _returned(
    claim: Claim, wanted: Amounts, rest: _Rest, jobs: Sequence[tuple[Sized, Target]]
) -> dict[str, Target] | None:
    """The jobs that give pods back, the youngest first, so that the claim lacks nothing; None if that is not enough."""
    found: dict[str, Target] = {}
    missing = _missing(claim.queue, wanted, rest)
    for job, target in reversed(jobs):
        short = {key: missing[key] / job.needs[key] for key in missing.keys() & job.needs.keys()}
        if not short:
            continue
        before = target.pods
        pods = job.within(before - int(max(short.values()).to_integral_value(ROUND_CEILING)))
        if job.queue != claim.queue:
            borrowed = max(rest.borrowed(job.queue, key) / job.needs[key] for key in short)
            pods = max(pods, job.within(before - int(borrowed.to_integral_value(ROUND_CEILING))))
        if pods >= before:
            continue
        found[job.name] = Target(pods=pods, claims=(*target.claims, claim.name))
        freed = _times(job.needs, before - pods)
        missing = {key: amount - freed.get(key, _NOTHING) for key, amount in missing.items()}
        missing = {key: amount for key, amount in missing.items() if amount > 0}
    return None if missing else found


def _times(amounts: Amounts, factor: int) -> dict[Key, Decimal]:
    return {key: amount * factor for key, amount in amounts.items()}
