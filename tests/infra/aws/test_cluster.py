"""The network, the control plane, access entries and add-ons, as far as they depend on the settings."""

from __future__ import annotations

from infra.aws.addons import configuration_of
from infra.aws.cluster import access_entries
from infra.policy import tokens
from infra.spec.settings import from_mapping
from tests.infra.aws.graphs import ADMIN, graph, sample, unusual
from tests.infra.spec.samples import changed, dev_sections


def test_connected_networks_reach_the_private_endpoint_on_443_only() -> None:
    rules = [one for one in unusual().of_type(tokens.INGRESS_RULE) if one.name.startswith("client-")]
    sources = {
        one.get("cidrIpv4") or one.get("referencedSecurityGroupId"): (one["ipProtocol"], one["fromPort"], one["toPort"])
        for one in (rule.properties for rule in rules)
    }
    assert sources == {"10.99.1.0/24": ("tcp", 443, 443), "444455556666/sg-0123456789abcdef0": ("tcp", 443, 443)}
    [cluster] = unusual().of_type(tokens.CLUSTER)
    assert all(cluster.urn in rule.property_dependencies["securityGroupId"] for rule in rules)


def test_the_upgrade_policy_follows_the_settings() -> None:
    assert sample().find(tokens.CLUSTER, "cluster").properties["upgradePolicy"] == {"supportType": "STANDARD"}
    assert unusual().find(tokens.CLUSTER, "cluster").properties["upgradePolicy"] == {"supportType": "EXTENDED"}


def test_a_team_role_is_in_the_team_group_and_an_admin_only_if_it_is_one() -> None:
    entry = unusual().find("aws:eks/accessEntry:AccessEntry", "teams/researcher")
    assert entry.properties["kubernetesGroups"] == ["ray-train-platform:team:research"]
    policies = unusual().of_type("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert [policy.name for policy in policies] == ["admin"]
    settings = from_mapping(changed(dev_sections(), {"teams.0.roles": [ADMIN]}), file="sample")
    (access,) = access_entries(settings)
    assert access.is_admin
    assert access.groups == ["ray-train-platform:team:research"]


def test_volumes_of_a_cluster_that_others_use_too_are_not_tagged_as_the_stacks() -> None:
    assert configuration_of("aws-ebs-csi-driver", {}) is None
    recording = graph("existing-cluster")
    values = [one.properties.get("configurationValues") or "" for one in recording.of_type(tokens.ADDON)]
    assert not [one for one in values if "ray-train-platform" in one]


def test_only_configured_endpoints_exist() -> None:
    endpoints = unusual().of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    assert {one.name for one in endpoints} == {"s3", "sts"}
