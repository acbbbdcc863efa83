"""Settings of an existing VPC and an existing cluster: the examples load, and each wrong value is named with its rule."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.cost import estimate_cost
from infra.spec.errors import SettingsError
from infra.spec.release import load_release
from infra.spec.section import read_document
from infra.spec.settings import StackSettings, from_mapping
from infra.spec.settings.addresses import control_plane_cidrs, node_addresses
from infra.spec.settings.network import subnets_of
from tests.infra.aws.graphs import EXAMPLES, settings_of
from tests.infra.spec.samples import SINGLE_SIGN_ON, Tree, changed, dev_sections

VPC = "network.existing"
CLUSTER = "cluster.existing"
ADMIN = "arn:aws:iam::111122223333:role/platform-admin"
OTHER = "arn:aws:iam::111122223333:role/other"


def example(environment: str) -> Tree:
    return copy.deepcopy(dict(read_document(EXAMPLES / f"{environment}.yaml").value))


def with_changes(environment: str, changes: dict[str, Any]) -> StackSettings:
    return from_mapping(changed(example(environment), changes), file="sample")


def message_of(environment: str, changes: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        with_changes(environment, changes)
    return str(caught.value)


IN_A, IN_B = (f"{VPC}.private_subnets.us-east-1{zone}" for zone in "ab")
FROM_OUTSIDE = {**SINGLE_SIGN_ON, "internet_facing": True, "client_cidrs": ["198.51.100.0/24"]}
WRONG_OF_A_VPC: list[tuple[dict[str, Any], str]] = [
    ({"network.cidr": "10.40.0.0/16"}, "network.cidr = 10.40.0.0/16: has no effect on a VPC that exists; omit it"),
    ({"network.interface_endpoints": ["sts"]}, "network.interface_endpoints = [sts]: has no effect on a VPC"),
    ({f"{VPC}.vpc_id": "10.0.0.0/16"}, "must be the ID of a VPC: vpc-…"),
    ({f"{VPC}.private_subnets.us-east-1a.id": "subnet"}, "must be the ID of a subnet: subnet-…"),
    ({f"{VPC}.cidrs": []}, f"{VPC}.cidrs"),
    (
        {IN_B: ...},
        "private_subnets = us-east-1a: must have one subnet for each of availability_zones: us-east-1a, us-east-1b",
    ),
    (
        {f"{IN_B}.cidr": "10.99.0.0/18"},
        f"{IN_B}.cidr = 10.99.0.0/18: must lie in {VPC}.cidrs, which is 10.40.0.0/16, 100",
    ),
    ({f"{IN_B}.id": "subnet-0aaaaaaaaaaaaaaa1"}, f"is also {IN_A}.id; a subnet is in one zone"),
    (
        {f"{IN_A}.cidr": "100.64.0.0/24"},
        f"{IN_A}.cidr = 100.64.0.0/24: too small: subnet 100.64.0.0/24 of us-east-1a has",
    ),
    ({"network.service_cidr": "10.40.4.0/22"}, f"service_cidr = 10.40.4.0/22: overlaps {VPC}.cidrs.0 = 10.40.0.0/16"),
    ({"network.peered_cidrs": ["100.64.8.0/24"]}, f"network.peered_cidrs.0 = 100.64.8.0/24: overlaps {VPC}.cidrs.1"),
    ({"single_sign_on": FROM_OUTSIDE}, f"{VPC}.public_subnets: is required for single_sign_on.internet_facing"),
]


def test_a_wrong_setting_of_an_existing_vpc_is_named_with_its_rule() -> None:
    for changes, expected in WRONG_OF_A_VPC:
        assert expected in message_of("existing-vpc", changes), changes


def test_a_wrong_setting_of_an_existing_cluster_is_named_with_its_rule() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cluster.public_cidrs": ["198.51.100.0/24"]}, "public_cidrs = [198.51.100.0/24]: has no effect on a cluster"),
        ({"cluster.logs": ["api"]}, "cluster.logs = [api]: has no effect on a cluster that exists"),
        ({f"{CLUSTER}.name": "a/b"}, "must be the name of an EKS cluster"),
        ({f"{CLUSTER}.addons": ["aws-efs-csi-driver", "core-dns"]}, "addons.1 = core-dns: no add-on of the release"),
        ({f"{CLUSTER}.addons": ["aws-efs-csi-driver", "aws-efs-csi-driver"]}, "is listed twice"),
        ({f"{CLUSTER}.addons": ["aws-efs-csi-driver", "aws-fsx-csi-driver"]}, "is used with storage.lustre only"),
        ({f"{CLUSTER}.driver_roles": {}}, f"{CLUSTER}.driver_roles.aws-ebs-csi-driver: is required"),
        (
            {f"{CLUSTER}.driver_roles.aws-efs-csi-driver": OTHER},
            f"aws-efs-csi-driver is in {CLUSTER}.addons, and the stack",
        ),
        ({f"{CLUSTER}.driver_roles.coredns": OTHER}, f"{CLUSTER}.driver_roles.coredns"),
        ({f"{CLUSTER}.admins": [OTHER]}, f"{CLUSTER}.admins.0 = {OTHER}: must be one of cluster.admin_roles"),
        ({f"{CLUSTER}.control_plane_cidrs": ["10.99.0.0/20"]}, "must lie in the VPC, which is 10.40.0.0/16, 100.64.0"),
    ]
    for changes, expected in cases:
        assert expected in message_of("existing-cluster", changes), changes


def test_the_stack_installs_the_add_ons_that_the_settings_list_and_lustres_only_with_lustre() -> None:
    found = settings_of("existing-cluster")
    existing = found.cluster.existing
    assert existing is not None
    installed = [name for name in load_release().addons if found.installs_addon(name)]
    assert installed == [name for name in load_release().addons if name in existing.addons]
    assert not found.installs_addon("vpc-cni")
    assert found.needs_addon("vpc-cni")
    own = from_mapping(dev_sections(), file="sample")
    assert own.installs_addon("vpc-cni")
    assert not own.needs_addon("aws-fsx-csi-driver")


def test_a_new_vpc_needs_its_range_and_an_existing_cluster_its_vpc() -> None:
    existing = {**example("existing-cluster")["cluster"]["existing"], "control_plane_cidrs": []}
    with pytest.raises(SettingsError, match=r"network\.existing: is required for cluster\.existing"):
        from_mapping(changed(dev_sections(), {"cluster.existing": existing}), file="sample")
    with pytest.raises(SettingsError, match=r"network\.cidr: is required: Address range of the VPC"):
        from_mapping(changed(dev_sections(), {"network.cidr": ...}), file="sample")


def test_the_largest_subnet_that_is_too_small_is_refused_and_the_next_one_is_not() -> None:
    settings = settings_of("existing-vpc")
    needed = node_addresses(settings)["us-east-1a"] + 37
    prefix = 32 - (needed - 1).bit_length()
    key = f"{VPC}.private_subnets.us-east-1a.cidr"
    with_changes("existing-vpc", {key: f"100.64.0.0/{prefix}"})
    assert f"the node groups at max_size need {needed}" in message_of("existing-vpc", {key: f"100.64.0.0/{prefix + 1}"})


def test_prod_in_an_existing_vpc_needs_no_nat_gateways_of_the_stack() -> None:
    message = message_of("existing-vpc", {"environment.kind": "prod"})
    assert "prod needs three zones" in message
    assert "network.nat" not in message


def test_the_subnets_are_those_of_the_settings_and_the_api_server_is_where_the_cluster_was_made() -> None:
    found = subnets_of(settings_of("existing-vpc").network)
    assert [*map(str, found.private)] == ["100.64.0.0/18", "100.64.64.0/18"]
    assert found.public == ()
    assert control_plane_cidrs(settings_of("existing-cluster")) == ("10.40.0.0/20", "10.40.16.0/20")
    assert control_plane_cidrs(settings_of("existing-vpc")) == ("100.64.0.0/18", "100.64.64.0/18")


def test_the_cost_leaves_out_what_the_stack_does_not_make() -> None:
    def items(name: str) -> set[str]:
        return {item.name for item in estimate_cost(settings_of(name), catalog=load_catalog()).items}

    network = {"NAT gateways", "interface endpoints, per zone", "VPC flow logs, GB"}
    assert items("dev") - items("existing-vpc") >= network
    assert items("dev") - items("existing-cluster") >= {*network, "EKS control plane", "control-plane logs, GB"}
