"""The policy: what limits a run, said in words, and the first thing to try. `breakdown` measures, this judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from observability.profiling.breakdown import RankTime
from observability.quantities import duration, percent

Limit = Literal["data", "checkpoint", "compute", "communication", "host", "straggler"]

STRAGGLER_SHARE: Final = 0.15
"""Share of a step that the rank with the longest wait waits more than the one with the shortest, from which the latter is a straggler.
Equal ranks wait for each other in turn, by chance; that counts as communication."""

STRAGGLER_STEPS: Final = 0.75
"""Share of the steps in which a straggler has to be the last; a busy machine makes any rank late now and then."""

MENTIONED_SHARE: Final = 0.1
"""Share of a step from which a limit is mentioned beside the largest."""

_DISPATCH_SHARE: Final = 0.5
"""Share of the host's overhead that is dispatch from which small operators are named as its cause."""


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """What is known of the run beside the profiled steps; they may be few, and hold no checkpoint.

    Attributes:
        checkpoint_share: of the time of the steps in its log, on rank 0; None without a step.
        loader_workers, checkpoint_every, precision: its settings.
    """

    checkpoint_share: float | None = None
    loader_workers: int = 0
    checkpoint_every: int = 0
    precision: str = "fp32"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What limits the run.

    Attributes:
        limit: the largest part of a step's time.
        share: of the step's time.
        sentence: the verdict in words, with numbers.
        advice: the first thing to try.
        others: further limits that are worth a look, the largest first.
        slow_rank: the straggler; None without one.
    """

    limit: Limit
    share: float
    sentence: str
    advice: str
    others: list[str]
    slow_rank: int | None = None


def judge(ranks: Sequence[RankTime], run: RunFigures) -> Verdict:
    """The verdict on a profile of at least one rank."""
    shares = limit_shares(ranks, run)
    slowest, excess = _straggler(ranks)
    own, own_share = _largest_own(slowest)
    is_straggler = excess >= STRAGGLER_SHARE and slowest.last_share >= STRAGGLER_STEPS
    if is_straggler and own != "checkpoint":  # rank 0 writes those, and the others wait: nothing is wrong with it
        return Verdict(
            limit="straggler",
            share=excess,
            sentence=f"rank {slowest.rank} on {slowest.machine} holds up the others, who wait for it up to {percent(excess)} of each "
            f"step; {percent(own_share)} of its own step is {_WORDS[own]}",
            advice=_straggler_advice(own, slowest, run),
            others=_others({**shares, "communication": _transfer_share(ranks)}, own),
            slow_rank=slowest.rank,
        )
    limit = max(shares, key=lambda name: shares[name])
    step = sum(rank.step for rank in ranks) / len(ranks)
    taken = f"{percent(shares[limit])} of a step's {duration(step)}"
    return Verdict(
        limit=limit,
        share=shares[limit],
        sentence=f"{limit}-bound: {taken} {_IS_SPENT[limit]}",
        advice=_ADVICE[limit](ranks, run),
        others=_others(shares, limit),
    )


def limit_shares(ranks: Sequence[RankTime], run: RunFigures) -> dict[Limit, float]:
    """The share of each limit in the mean step of all ranks; they add up to 1.

    The share of checkpoints is that of the whole run, if its log has one: profiled steps hold one by chance.
    """
    total = sum(rank.step for rank in ranks)
    checkpoint = run.checkpoint_share
    if checkpoint is None:
        checkpoint = sum(rank.checkpoint for rank in ranks) / total
    rest = sum(rank.step - rank.checkpoint for rank in ranks)
    scale = (1 - checkpoint) / rest if rest else 0.0
    return {
        "data": scale * sum(rank.data for rank in ranks),
        "checkpoint": checkpoint,
        "compute": scale * sum(rank.compute for rank in ranks),
        "communication": scale * sum(rank.transfer + rank.waiting for rank in ranks),
        "host": scale * sum(rank.overhead for rank in ranks),
    }


def _straggler(ranks: Sequence[RankTime]) -> tuple[RankTime, float]:
    """The rank that waits least, and how much longer another one waits, as a share of its step."""
    slowest = min(ranks, key=lambda rank: rank.waiting / rank.step)
    most = max(rank.waiting / rank.step for rank in ranks)
    return slowest, most - slowest.waiting / slowest.step


def _transfer_share(ranks: Sequence[RankTime]) -> float:
    return sum(rank.transfer for rank in ranks) / sum(rank.step for rank in ranks)


def _largest_own(rank: RankTime) -> tuple[Limit, float]:
    own: dict[Limit, float] = {
        "data": rank.data,
        "checkpoint": rank.checkpoint,
        "compute": rank.compute,
        "host": rank.overhead,
    }
    largest = max(own, key=lambda name: own[name])
    return largest, own[largest] / rank.step


def _others(shares: dict[Limit, float], chosen: Limit) -> list[str]:
    worth = [name for name, share in shares.items() if name not in {chosen, "compute"} and share >= MENTIONED_SHARE]
    return [f"{percent(shares[name])} {_IS_SPENT[name]}" for name in sorted(worth, key=lambda name: -shares[name])]


_IS_SPENT: Final[dict[Limit, str]] = {
    "data": "is the wait for data",
    "checkpoint": "is the delay by checkpoints",
    "compute": "is computation",
    "communication": "is communication that no computation hides",
    "host": "is overhead of the host: Python, dispatch of small operators, launches",
}

_WORDS: Final[dict[Limit, str]] = {
    "data": "the wait for data",
    "checkpoint": "checkpoints",
    "compute": "computation",
    "host": "overhead of its host: Python, dispatch of small operators, launches, sleep",
}


def _data_advice(_ranks: Sequence[RankTime], run: RunFigures) -> str:
    if run.loader_workers == 0:
        return "load in processes of their own: SET=data.loader_workers=2, if the ranks leave CPUs for them"
    return (
        f"raise data.loader_workers={run.loader_workers} if CPUs are free; else make a sample cheaper to read: smaller files, "
        "data.cache on a local disk, less augmentation"
    )


def _checkpoint_advice(_ranks: Sequence[RankTime], run: RunFigures) -> str:
    if run.checkpoint_every:
        return f"save less often: raise checkpoint.every_steps={run.checkpoint_every}, to what a restart may cost you"
    return "save less often: raise checkpoint.every_steps, to what a restart may cost you"


def _compute_advice(ranks: Sequence[RankTime], run: RunFigures) -> str:
    top = ranks[0].top[0].name if ranks[0].top else ""
    costs = f"; the most expensive is {top}" if top else ""
    if run.precision == "fp32":
        return f"this is what you pay for: try SET=precision.mode=bf16, then more workers{costs}"
    return f"this is what you pay for: more workers, or a cheaper model{costs}"


def _communication_advice(ranks: Sequence[RankTime], _run: RunFigures) -> str:
    waiting, transfer = sum(rank.waiting for rank in ranks), sum(rank.transfer for rank in ranks)
    if waiting > transfer:
        return "the ranks wait for each other in turn more than for the network: give each its own cores, and equal samples"
    return (
        "communicate less often: raise loop.accumulation with loop.global_batch; then look at the network between the nodes, and use "
        "fewer ranks per step's work"
    )


def _host_advice(ranks: Sequence[RankTime], _run: RunFigures) -> str:
    dispatch, overhead = sum(rank.dispatch for rank in ranks), sum(rank.overhead for rank in ranks)
    per_step = sum(rank.operators for rank in ranks) / len(ranks)
    if dispatch >= _DISPATCH_SHARE * overhead:
        return (
            f"do more per operator: most of the overhead is the dispatch of {per_step:,.0f} operators a step; raise loop.global_batch, or "
            "replace loops in the model by operators on whole tensors"
        )
    return (
        "look for Python between the operators of the model and the objective, in the trace: transfers with .item() or .cpu(), "
        "locks, files, sleep"
    )


def _straggler_advice(own: Limit, slowest: RankTime, run: RunFigures) -> str:
    if own == "data":
        return f"look at what rank {slowest.rank} reads, and at the disk of its machine; {_data_advice([slowest], run)}"
    if own == "host":
        return (
            f"look in the trace of rank {slowest.rank} at what it does between operators that the others do not: files, sleep, logging; "
            f"then at what else runs on {slowest.machine}"
        )
    return (
        f"look at {slowest.machine} for what else runs there, for throttling and slow hardware, and at the samples of rank "
        f"{slowest.rank}: a rank whose batches are larger or longer computes longer"
    )


_ADVICE: Final[dict[Limit, Callable[[Sequence[RankTime], RunFigures], str]]] = {
    "data": _data_advice,
    "checkpoint": _checkpoint_advice,
    "compute": _compute_advice,
    "communication": _communication_advice,
    "host": _host_advice,
}
