"""The control plane, access entries and add-ons."""

from __future__ import annotations

import json

import pytest

from infra.aws.addons import configuration_of
from infra.aws.cluster import access_entries
from infra.policy import tokens
from infra.spec.names import node_tags
from infra.spec.protection import protection_of
from infra.spec.release import load_release
from infra.spec.settings import from_mapping
from infra.spec.settings.cluster import LUSTRE_DRIVER
from tests.infra.aws.graphs import ADMIN, ENVIRONMENTS, graph, sample, settings_of, unusual
from tests.infra.spec.samples import changed, dev_sections

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)


@every_environment
def test_the_api_server_is_private_unless_the_settings_have_public_cidrs(environment: str) -> None:
    vpc = graph(environment).find(tokens.CLUSTER, "cluster").properties["vpcConfig"]
    cidrs = [str(cidr) for cidr in settings_of(environment).cluster.public_cidrs]
    assert vpc["endpointPrivateAccess"] is True
    assert vpc["endpointPublicAccess"] is bool(cidrs)
    assert vpc.get("publicAccessCidrs", []) == cidrs


def test_prod_has_no_public_endpoint_and_dev_has_one() -> None:
    def is_public(environment: str) -> object:
        return graph(environment).find(tokens.CLUSTER, "cluster").properties["vpcConfig"]["endpointPublicAccess"]

    assert (is_public("prod"), is_public("dev")) == (False, True)


def test_connected_networks_reach_the_private_endpoint_on_443_only() -> None:
    rules = [one for one in unusual().of_type(tokens.INGRESS_RULE) if one.name.startswith("client-")]
    sources = {
        rule.properties.get("cidrIpv4") or rule.properties.get("referencedSecurityGroupId"): (
            rule.properties["ipProtocol"],
            rule.properties["fromPort"],
            rule.properties["toPort"],
        )
        for rule in rules
    }
    assert sources == {
        "10.99.1.0/24": ("tcp", 443, 443),
        "444455556666/sg-0123456789abcdef0": ("tcp", 443, 443),
    }
    [cluster] = unusual().of_type(tokens.CLUSTER)
    assert all(cluster.urn in rule.property_dependencies["securityGroupId"] for rule in rules)


@every_environment
def test_secrets_are_encrypted_with_the_cluster_key(environment: str) -> None:
    recording = graph(environment)
    cluster = recording.find(tokens.CLUSTER, "cluster")
    assert cluster.properties["encryptionConfig"]["resources"] == ["secrets"]
    assert recording.find(tokens.KEY, "cluster").urn in cluster.property_dependencies["encryptionConfig"]


@every_environment
def test_deletion_protection_follows_the_kind_of_environment(environment: str) -> None:
    wanted = protection_of(settings_of(environment).environment.kind).deletion_protection
    assert graph(environment).find(tokens.CLUSTER, "cluster").properties["deletionProtection"] is wanted


@every_environment
def test_the_cluster_depends_on_its_log_group(environment: str) -> None:
    recording = graph(environment)
    cluster, group = recording.find(tokens.CLUSTER, "cluster"), recording.find(tokens.LOG_GROUP, "cluster")
    assert group.urn in cluster.dependencies
    assert group.properties["name"] == f"/aws/eks/{cluster.properties['name']}/cluster"
    assert group.properties["retentionInDays"] == settings_of(environment).cluster.log_days


def test_the_kubernetes_version_is_the_releases() -> None:
    assert graph("prod").find(tokens.CLUSTER, "cluster").properties["version"] == load_release().kubernetes.version


def test_the_upgrade_policy_follows_the_settings() -> None:
    assert sample().find(tokens.CLUSTER, "cluster").properties["upgradePolicy"] == {"supportType": "STANDARD"}
    assert unusual().find(tokens.CLUSTER, "cluster").properties["upgradePolicy"] == {"supportType": "EXTENDED"}


def test_only_access_entries_grant_access() -> None:
    cluster = graph("prod").find(tokens.CLUSTER, "cluster").properties
    assert cluster["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }


def test_an_admin_has_one_access_entry_and_the_cluster_admin_policy() -> None:
    recording = sample()
    entry = recording.find("aws:eks/accessEntry:AccessEntry", "admin")
    policy = recording.find("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", "admin")
    assert (entry.properties["principalArn"], policy.properties["principalArn"]) == (ADMIN, ADMIN)
    assert policy.properties["accessScope"] == {"type": "cluster"}


def test_a_team_role_is_in_the_team_group_and_no_admin() -> None:
    entry = unusual().find("aws:eks/accessEntry:AccessEntry", "teams/researcher")
    assert entry.properties["kubernetesGroups"] == ["ray-train-platform:team:research"]
    policies = unusual().of_type("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert [policy.name for policy in policies] == ["admin"]


def test_a_role_that_is_admin_and_team_member_has_one_access_entry() -> None:
    settings = from_mapping(changed(dev_sections(), {"teams.0.roles": [ADMIN]}), file="sample")
    (access,) = access_entries(settings)
    assert access.is_admin
    assert access.groups == ["ray-train-platform:team:research"]


@every_environment
def test_every_add_on_of_the_release_is_installed_at_its_version(environment: str) -> None:
    installed = {one.name: one.properties.get("addonVersion") for one in graph(environment).of_type(tokens.ADDON)}
    addons = {name: addon.version for name, addon in load_release().addons.items() if name != LUSTRE_DRIVER}
    assert installed == addons


def test_the_cni_delegates_prefixes_and_enforces_network_policies() -> None:
    values = json.loads(graph("prod").find(tokens.ADDON, "vpc-cni").properties["configurationValues"])
    assert values["env"]["ENABLE_PREFIX_DELEGATION"] == "true"
    assert values["enableNetworkPolicy"] == "true"


@every_environment
def test_what_the_drivers_make_in_aws_has_the_tags_of_the_stack(environment: str) -> None:
    """Or nothing would say whose a volume is, and until when, that has outlived its cluster."""
    recording, tags = graph(environment), node_tags(settings_of(environment))
    values = {
        name: json.loads(recording.find(tokens.ADDON, name).properties["configurationValues"])
        for name in ("vpc-cni", "aws-ebs-csi-driver")
    }
    assert json.loads(values["vpc-cni"]["env"]["ADDITIONAL_ENI_TAGS"]) == tags
    assert values["aws-ebs-csi-driver"]["controller"]["extraVolumeTags"] == tags


def test_volumes_of_a_cluster_that_others_use_too_are_not_tagged_as_the_stacks() -> None:
    assert configuration_of("aws-ebs-csi-driver", {}) is None
    recording = graph("existing-cluster")
    values = [one.properties.get("configurationValues") or "" for one in recording.of_type(tokens.ADDON)]
    assert not [one for one in values if "ray-train-platform" in one]


@pytest.mark.parametrize(
    ("addon", "role", "accounts"),
    [
        ("vpc-cni", "vpc-cni", {"aws-node"}),
        ("aws-ebs-csi-driver", "ebs-csi", {"ebs-csi-controller-sa"}),
        ("aws-efs-csi-driver", "efs-csi", {"efs-csi-controller-sa", "efs-csi-node-sa"}),
    ],
)
def test_an_add_on_that_calls_aws_has_its_own_role(addon: str, role: str, accounts: set[str]) -> None:
    recording = graph("prod")
    installed = recording.find(tokens.ADDON, addon)
    associations = installed.properties["podIdentityAssociations"]
    assert {one["serviceAccount"] for one in associations} == accounts
    assert installed.property_dependencies["podIdentityAssociations"] == (recording.find(tokens.ROLE, role).urn,)


def test_no_service_account_has_two_pod_identity_associations() -> None:
    recording = graph("prod")
    by_addon = [
        ("kube-system", one["serviceAccount"])
        for addon in recording.of_type(tokens.ADDON)
        for one in addon.properties.get("podIdentityAssociations", [])
    ]
    direct = [
        (one.properties["namespace"], one.properties["serviceAccount"])
        for one in recording.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    ]
    assert len({*by_addon, *direct}) == len(by_addon) + len(direct)
    assert ("research", "trainer") in direct


@every_environment
def test_the_node_monitoring_agents_gpu_server_runs_on_tainted_nodes(environment: str) -> None:
    addon = graph(environment).find(tokens.ADDON, "eks-node-monitoring-agent")
    values = json.loads(addon.properties["configurationValues"])
    assert values["dcgmAgent"]["tolerations"] == [{"operator": "Exists"}]
