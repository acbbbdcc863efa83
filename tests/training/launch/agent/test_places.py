"""Ranks by node."""

from __future__ import annotations

from training.launch.agent.messages import Hello
from training.launch.agent.places import in_rank_order, local_ranks


def agents(*nodes: str) -> list[Hello]:
    """One agent on each of the nodes, which may be named repeatedly; its worker has its number."""
    return [Hello(worker=str(number), host=f"host of {node}", node=node) for number, node in enumerate(nodes)]


def test_the_agents_of_a_node_have_consecutive_ranks_and_the_first_one_is_rank_0() -> None:
    ordered = in_rank_order(agents("b", "a", "b", "c", "a"))
    assert [agent.worker for agent in ordered] == ["0", "2", "1", "4", "3"]
    assert local_ranks(ordered) == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1)]


def test_without_ray_the_address_tells_nodes_apart() -> None:
    found = [Hello(worker=str(number), host=host) for number, host in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.1"])]
    assert [agent.worker for agent in in_rank_order(found)] == ["0", "2", "1"]
