"""Hourly cost, against sums computed by hand from the price table."""

from __future__ import annotations

from typing import Any

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.cost import CostEstimate, CostItem, estimate_cost
from infra.spec.settings import from_mapping, load_environment
from tests.infra.spec.samples import SHIPPED, changed, dev_sections, prod_sections

CATALOG = load_catalog()
RESERVED = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
BLOCK = {**RESERVED, "kind": "capacity_block", "ends": "2030-01-01T00:00:00Z"}


def estimate_of(changes: dict[str, Any]) -> CostEstimate:
    return estimate_cost(from_mapping(changed(dev_sections(), changes), file="sample"), catalog=CATALOG)


def item(cost: CostEstimate, prefix: str) -> CostItem:
    (found,) = [line for line in cost.items if line.name.startswith(prefix)]
    return found


def test_the_cost_of_an_idle_environment_without_gpus_follows_the_table() -> None:
    cost = estimate_of({"gpu_groups": [], "teams": []})
    month = 730
    by_hand = (
        0.10  # control plane
        + 3 * 0.2016  # three m7i.xlarge
        + (3 * 100 * 0.08 + 50 * 0.08) / month  # their volumes and Prometheus's
        + 0.065
        + 20 * 0.115 / month  # database and its storage
        + 0.045
        + 0.005  # NAT gateway and its address
        + 7 * 3 * 0.01  # seven endpoints in three zones
        + (0.05 + 3 * 0.005 + 3 * 0.01) * 0.5  # logs of the control plane and of the network
    )
    assert cost.idle_usd_per_hour == pytest.approx(by_hand)


def test_gpu_groups_cost_nothing_idle_and_the_list_price_full_but_for_reserved_capacity() -> None:
    h100 = item(estimate_of({}), "nodes h100")
    assert (h100.idle, h100.full, h100.usd_per_unit_hour) == (0, 2, 55.04)
    h100 = item(estimate_of({"gpu_groups.1.capacity": RESERVED, "gpu_groups.1.placement": "none"}), "nodes h100")
    assert (h100.idle, h100.full, h100.note) == (2, 2, "billed whether used or not")
    block = estimate_of({"gpu_groups.1.capacity": BLOCK, "gpu_groups.1.placement": "none"})
    assert not [line for line in block.items if line.name.startswith("nodes h100")]


def test_spot_and_extended_support_are_priced_as_ceilings_and_several_types_as_the_dearest() -> None:
    assert item(estimate_of({}), "nodes t4").note.startswith("upper bound")
    capacity = {"kind": "spot", "instance_types": ["g5.2xlarge"]}
    t4 = item(estimate_of({"gpu_groups.0.instance_type": "g5.xlarge", "gpu_groups.0.capacity": capacity}), "nodes t4")
    assert (t4.name, t4.usd_per_unit_hour) == ("nodes t4, g5.xlarge to g5.2xlarge", 1.212)
    line = item(estimate_of({"cluster.support": "extended"}), "EKS control plane")
    assert (line.usd_per_unit_hour, line.note[:11]) == (0.60, "upper bound")


def test_throughput_beyond_the_baseline_is_billed_for_each_node() -> None:
    line = item(estimate_of({}), "throughput of node volumes")
    # Head nodes only: 475 MiB/s beyond 125 each. The images of the GPU nodes are on their own disks.
    assert [line.idle, line.full] == pytest.approx([0, 4 * 475 / 1024])
    assert line.usd_per_unit_hour == pytest.approx(40.96 / 730)


def test_logs_are_an_estimate_with_its_assumption_in_the_note() -> None:
    cost = estimate_of({})
    control_plane, flow_logs = item(cost, "control-plane logs"), item(cost, "VPC flow logs")
    assert control_plane.usd_per_unit_hour == flow_logs.usd_per_unit_hour == 0.5
    # 3 nodes while idle; 6 of the system, 4 heads, 4 of t4 and 2 of h100.
    assert [control_plane.idle, control_plane.full] == pytest.approx([0.05 + 0.005 * 3, 0.05 + 0.005 * 16])
    assert [flow_logs.idle, flow_logs.full] == pytest.approx([0.01 * 3, 0.01 * 16])
    assert "assumes 0.05 GB an hour and 0.005 GB for each node" in control_plane.note
    assert "assumes 0.01 GB an hour for each node" in flow_logs.note


def test_prod_pays_for_a_standby_and_three_gateways() -> None:
    cost = estimate_cost(from_mapping(prod_sections(), file="sample"), catalog=CATALOG)
    assert item(cost, "database, ").idle == 2
    assert item(cost, "database storage").idle == 40
    assert item(cost, "NAT gateways").idle == 3


def test_a_null_price_is_listed_as_unresolved_and_in_another_region_every_price_is() -> None:
    cost = estimate_of({"database": {"instance_class": "db.m7g.xlarge"}})
    assert cost.unresolved == ("database, db.m7g.xlarge",)
    assert cost.idle_usd_per_hour == pytest.approx(estimate_of({}).idle_usd_per_hour - 0.065)
    zones = ["us-west-2a", "us-west-2b", "us-west-2c"]
    region = {"aws.region": "us-west-2", "network.availability_zones": zones}
    cost = estimate_of({**region, "gpu_groups.1.availability_zones": zones[:1]})
    assert len(cost.unresolved) == len(cost.items)
    assert cost.full_usd_per_hour == 0


def test_a_full_environment_costs_more_than_an_idle_one_and_every_price_has_its_date() -> None:
    for name in SHIPPED:
        cost = estimate_cost(load_environment(name), catalog=CATALOG)
        assert 0 < cost.idle_usd_per_hour < cost.full_usd_per_hour, name
        assert not cost.unresolved, "every default has a price"
    assert all(line.as_of is not None for line in estimate_of({}).items)
