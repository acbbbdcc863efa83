"""Which rank each agent gets: those of a node have consecutive ranks, as collectives that know nodes expect."""

from __future__ import annotations

from collections.abc import Sequence

from training.launch.agent.messages import Hello


def in_rank_order(agents: Sequence[Hello]) -> list[Hello]:
    """The agents by node, in the order in which the nodes' first agents are given. So an agent that stays first stays rank 0."""
    nodes = list(dict.fromkeys(map(_node, agents)))
    return sorted(agents, key=lambda agent: nodes.index(_node(agent)))


def local_ranks(agents: Sequence[Hello]) -> list[tuple[int, int]]:
    """Local rank and local world size of each rank; `agents` are in the order of the ranks."""
    nodes = list(map(_node, agents))
    return [(nodes[:rank].count(node), nodes.count(node)) for rank, node in enumerate(nodes)]


def _node(agent: Hello) -> str:
    """What tells its node apart; without Ray, its address does."""
    return agent.node or agent.host
