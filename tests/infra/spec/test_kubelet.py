"""The kubelet's reserves, against figures of real nodes."""

from __future__ import annotations

from infra.spec.kubelet import allocatable_memory_bytes, allocatable_millicores, default_max_pods

GIB = 2**30


def test_the_reserves_of_a_node_are_those_of_the_ami() -> None:
    found = {vcpus: allocatable_millicores(vcpus) for vcpus in (1, 2, 4, 8, 72)}
    assert found == {1: 940, 2: 1930, 4: 3920, 8: 7910, 72: 71750}
    # m5.large with 29 pods: 574 MiB reserved, 100 MiB eviction threshold; 7.5 % are not visible to the system.
    assert allocatable_memory_bytes(8, max_pods=29) == int(8 * GIB * 0.925) - 674 * 2**20
    whole = allocatable_memory_bytes(2048, max_pods=737)
    assert whole - allocatable_memory_bytes(2048, max_pods=737, huge_pages_bytes=10 * GIB) == 10 * GIB
    assert {vcpus: default_max_pods(vcpus) for vcpus in (2, 8, 12, 192)} == {2: 58, 8: 58, 12: 737, 192: 737}
