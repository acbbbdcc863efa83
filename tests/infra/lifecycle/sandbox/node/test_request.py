"""Which nodes `--real` asks for."""

from __future__ import annotations

import pytest

from infra.lifecycle.sandbox.node.request import RealNode, dump, load, requested
from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.settings import load_environment


def nodes(*words: str, environment: str = "dev") -> tuple[RealNode, ...]:
    return requested(words, load_environment(environment), catalog=load_catalog())


def names(*words: str) -> list[str]:
    return [node.name for node in nodes(*words)]


def test_words_become_nodes_with_the_names_of_fake_ones() -> None:
    assert names("system=1", "a10g=2") == ["system-0", "a10g-0", "a10g-1"]
    assert names("1") == ["system-0", "heads-0", "t4-0"], "a node of every group that a job needs"
    assert names() == []


def test_a_wrong_request_names_the_word_and_what_is_possible() -> None:
    for words, reason in (
        ("gpu=1", "gpu=1: no node group 'gpu'\n  remedy: write GROUP=COUNT with one of system, heads, t4, a10g"),
        ("1 a10g=1", "1: no node group '1'"),
        ("a10g", "a10g: nothing is not a number of nodes from 1 to 2"),
        ("a10g=0", "a10g=0: 0 is not a number of nodes from 1 to 2"),
        ("a10g=3", "a10g=3: 3 is not a number of nodes from 1 to 2, the group's max_size"),
        ("a10g=-1", "a10g=-1: -1 is not a number of nodes"),
    ):
        with pytest.raises(SettingsError) as refused:
            nodes(*words.split())
        assert str(refused.value).startswith(f"--real {reason}")
    sizes = (f"{request.name}={request.max_size}" for request in load_environment("prod").launch_requests())
    with pytest.raises(SettingsError, match=r"--real asks for \d+ nodes; at most 20 can be real"):
        nodes(*sizes, environment="prod")


def test_a_group_with_a_real_node_has_no_fake_ones() -> None:
    settings = load_environment("dev")
    fake = {node["metadata"]["name"] for node in fake_nodes(settings, catalog=load_catalog(), real=names("1"))}
    assert fake == {"a10g-0", "a10g-1"}


def test_nodes_reach_another_process_unchanged() -> None:
    assert load(dump(nodes("1"))) == nodes("1")
    assert load("") == ()
