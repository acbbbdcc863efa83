"""Capacity x placement x EFA: valid combinations, their launch plans, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.capacity import LaunchRequest, Spot, vcpus_by_quota
from infra.spec.catalog import load_catalog
from infra.spec.errors import SettingsError
from infra.spec.launch_plan import LaunchPlan, launch_plan
from infra.spec.launch_rules import launch_violations

CATALOG = load_catalog()
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
RESERVATION = "cr-0123456789abcdef0"
IN_B = f"{RESERVATION} is in us-east-1b"
RESERVED = {"id": RESERVATION, "availability_zone": "us-east-1b"}
CAPACITIES: dict[str, dict[str, Any]] = {
    "on_demand": {"kind": "on_demand"},
    "spot": {"kind": "spot"},
    "spot, EFA forced": {"kind": "spot", "allow_efa": True},
    "reservation": {"kind": "reservation", **RESERVED},
    "reservation in a placement group": {"kind": "reservation", **RESERVED, "placement_group": "training"},
    "capacity_block": {"kind": "capacity_block", **RESERVED, "ends": "2030-01-08T11:30:00Z"},
}


def request(instance_type: str = "p5.48xlarge", capacity: str = "on_demand", **fields: Any) -> LaunchRequest:  # noqa: ANN401
    data = {"name": "group", "max_size": 2, "availability_zones": ["us-east-1b"], **fields}
    return LaunchRequest.model_validate({"instance_type": instance_type, "capacity": CAPACITIES[capacity], **data})


requests = st.builds(
    request,
    st.sampled_from(sorted(CATALOG.instances)),
    st.sampled_from(sorted(CAPACITIES)),
    efa=st.booleans(),
    placement=st.sampled_from(["none", "cluster"]),
    local_nvme=st.booleans(),
    availability_zones=st.sampled_from([(), *((zone,) for zone in ZONES), ZONES]),
)


def test_an_invalid_combination_is_refused_by_key_and_rule() -> None:
    for case, key, message in (
        (request(capacity="spot", efa=True), "efa", "spot capacity excludes EFA"),
        (request("g5.xlarge", efa=True), "efa", "use a type with EFA: g5.12xlarge, g5.48xlarge"),
        (request("m7i.large", efa=True), "efa", "m7i.large does not support EFA"),
        (request(efa=True, availability_zones=ZONES[:2]), "availability_zones", "EFA traffic does not cross zones"),
        (request(placement="cluster", availability_zones=ZONES), "availability_zones", "needs exactly one zone"),
        (request(capacity="reservation", availability_zones=ZONES[:1]), "availability_zones", IN_B),
        (
            request(capacity="capacity_block", availability_zones=ZONES[2:]),
            "availability_zones",
            f"capacity_block {IN_B}",
        ),
        (request(capacity="capacity_block", placement="cluster"), "placement", "in an UltraCluster already"),
        (request(capacity="reservation", placement="cluster"), "placement", "created outside a placement group"),
        (request(capacity="reservation in a placement group"), "placement", "created in placement group training"),
        (request("g6.12xlarge", "capacity_block"), "capacity.kind", "p4d, p4de, p5, p5e, p5en, p6-b200, p6-b300, or"),
    ):
        (violation,) = launch_violations(case, catalog=CATALOG, network_zones=ZONES)
        zones = case.availability_zones or ZONES
        values = {"efa": "true", "placement": case.placement, "availability_zones": ", ".join(zones)}
        assert (violation.key, violation.value) == (key, values.get(key, case.capacity.kind)), case
        assert message in str(violation), case


def test_an_invalid_plan_is_refused_with_the_group_and_every_broken_rule() -> None:
    case = request("g5.xlarge", "spot", efa=True, placement="cluster", availability_zones=())
    with pytest.raises(SettingsError) as caught:
        launch_plan(case, catalog=CATALOG, network_zones=ZONES)
    lines = [line for line in str(caught.value).splitlines() if not line.startswith("    remedy")]
    assert [line.partition(":")[0] for line in lines] == ["node group group"] * 4


def of_types(main: str, *others: str, **fields: Any) -> LaunchRequest:  # noqa: ANN401 - of a LaunchRequest
    return request(main, **fields).model_copy(update={"capacity": Spot(kind="spot", instance_types=others)})


def test_types_of_a_spot_group_that_a_job_would_notice_are_refused() -> None:
    for case, rule in (
        (of_types("g5.xlarge", "g6.xlarge"), "has 1 x L4 with 22888 MiB, g5.xlarge has 1 x A10G with 22888 MiB"),
        (of_types("g5.xlarge", "g5.12xlarge"), "has 4 x A10G with 22888 MiB, g5.xlarge has 1 x A10G with 22888 MiB"),
        (of_types("g5.2xlarge", "g5.xlarge"), "has 4 vCPUs and 16 GiB of memory, g5.2xlarge has 8 and 32"),
        (of_types("g5.xlarge", "g5.xlarge"), "is the group's instance_type, or listed twice"),
        (of_types("g5.xlarge", "g5.3xlarge"), "is not in the catalogue"),
    ):
        with pytest.raises(SettingsError) as error:
            launch_plan(case, catalog=CATALOG, network_zones=ZONES)
        assert f"capacity.instance_types = {case.capacity.instance_types[0]}" in str(error.value), case  # type: ignore[union-attr]
        assert rule in str(error.value), case


def test_efa_needs_one_instance_type_because_the_launch_template_lists_its_interfaces() -> None:
    case = of_types("p4d.24xlarge", "p4d.24xlarge", efa=True)
    allowed = case.model_copy(update={"capacity": case.capacity.model_copy(update={"allow_efa": True})})
    with pytest.raises(SettingsError, match="EFA interfaces are those of one instance type"):
        launch_plan(allowed, catalog=CATALOG, network_zones=ZONES)


def test_a_spot_group_may_use_larger_types_with_the_same_gpus_and_its_quota_counts_the_largest() -> None:
    group = of_types("g5.xlarge", "g5.2xlarge")
    plan = launch_plan(group, catalog=CATALOG, network_zones=ZONES)
    assert (plan.instance.name, [one.name for one in plan.alternatives]) == ("g5.xlarge", ["g5.2xlarge"])
    needed = vcpus_by_quota([group], catalog=CATALOG)
    assert needed == {CATALOG.quotas["gpu_graphics"].spot: 2 * 8}


def test_a_reservation_gives_a_group_its_zone_and_placement_group() -> None:
    def plan(**fields: Any) -> LaunchPlan:  # noqa: ANN401 - of a LaunchRequest
        return launch_plan(request(**fields), catalog=CATALOG, network_zones=ZONES)

    assert plan(capacity="reservation", availability_zones=(), efa=True).availability_zones == ("us-east-1b",)
    assert plan(capacity="reservation in a placement group", placement="cluster").placement_group == "training"
    assert plan(placement="cluster").placement_group == "own"


def test_a_group_with_default_settings_is_on_demand_without_efa_in_every_zone() -> None:
    plain = LaunchRequest(name="group", instance_type="p5.48xlarge", max_size=1)
    plan = launch_plan(plain, catalog=CATALOG, network_zones=ZONES)
    assert (plan.capacity_type, plan.efa_count, plan.network_interfaces) == ("ON_DEMAND", 0, ())
    assert (plan.placement_group, plan.availability_zones, plan.nvme_raid0) == (None, ZONES, True)


def test_spot_has_efa_only_if_the_settings_allow_it() -> None:
    assert not Spot(kind="spot").allow_efa
    plan = launch_plan(request(capacity="spot, EFA forced", efa=True), catalog=CATALOG, network_zones=ZONES)
    assert plan.efa_count == 32


def test_an_efa_node_reserves_the_huge_pages_of_the_ami() -> None:
    for type_, mib in (("p5.48xlarge", 5128 * 2), ("p4d.24xlarge", 21122), ("p4de.24xlarge", 21122)):
        plan = launch_plan(request(type_, efa=True), catalog=CATALOG, network_zones=ZONES)
        assert plan.huge_pages_bytes == mib * 2**20, type_
        plain = launch_plan(request(type_, efa=False), catalog=CATALOG, network_zones=ZONES)
        assert plain.huge_pages_bytes == 0, type_


def test_efa_has_one_interface_per_card_and_ip_on_the_first_with_or_without_efa() -> None:
    interfaces = launch_plan(request(efa=True), catalog=CATALOG, network_zones=ZONES).network_interfaces
    assert [one.network_card_index for one in interfaces] == list(range(32))
    assert [one.interface_type for one in interfaces] == ["efa", *["efa-only"] * 31]
    assert [one.device_index for one in interfaces] == [0, *[1] * 31]
    plan = launch_plan(request("p6-b300.48xlarge", efa=True), catalog=CATALOG, network_zones=ZONES)
    assert [one.network_card_index for one in plan.network_interfaces] == list(range(17))
    assert [one.interface_type for one in plan.network_interfaces] == ["interface", *["efa-only"] * 16]
    assert plan.efa_count == 16


@given(case=requests)
def test_a_plan_exists_exactly_where_no_rule_is_broken_and_agrees_with_the_catalogue(case: LaunchRequest) -> None:
    if broken := list(launch_violations(case, catalog=CATALOG, network_zones=ZONES)):
        with pytest.raises(SettingsError) as caught:
            launch_plan(case, catalog=CATALOG, network_zones=ZONES)
        assert all(violation.rule in str(caught.value) for violation in broken)
        return
    plan = launch_plan(case, catalog=CATALOG, network_zones=ZONES)
    assert (plan.placement_group is not None) == (case.placement == "cluster")
    assert plan.efa_count == (plan.instance.efa_interfaces if case.efa else 0)
    assert plan.efa_count <= plan.instance.network_cards
    assert len(plan.availability_zones) == 1 or not (case.efa or plan.placement_group or plan.reservation_id)
    assert plan.nvme_raid0 == (case.local_nvme and plan.instance.nvme is not None)


def test_vcpus_are_counted_by_quota_without_capacity_blocks() -> None:
    groups = [
        request("p5.48xlarge"),
        request("p4d.24xlarge", "reservation"),
        request("g5.xlarge", "spot"),
        request("m7i.large"),
        request("p5.48xlarge", "capacity_block"),
        request("m7i.large", "spot"),
    ]
    assert vcpus_by_quota(groups, catalog=CATALOG) == {
        "L-417A185B": 2 * 192 + 2 * 96,
        "L-3819A6DF": 2 * 4,
        "L-1216C47A": 2 * 2,
        "L-34B43A08": 2 * 2,
    }
