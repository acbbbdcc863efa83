"""What is wrong with ranks, in few words: those of a pod usually have the same trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from training.conformance.facts import RankFacts


def troubles(ranks: Iterable[RankFacts], find: Callable[[RankFacts], str]) -> str:
    """What is wrong, by pod; empty if nothing is.

    Args:
        ranks: the ranks.
        find: what is wrong with one; empty if nothing is.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for one in ranks:
        if said := find(one):
            found.setdefault((one.host, said), []).append(one.rank)
    return "; ".join(
        f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))} on {host}: {said}"
        for (host, said), numbers in found.items()
    )
