"""The FSx for Lustre file system in the recorded graph of an environment that has one."""

from __future__ import annotations

import pytest

from infra.policy import tokens
from infra.preview.recording import Recording, Resource
from tests.infra.aws.graphs import ENVIRONMENTS, depends_on, graph, varied, with_lustre

LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"


def file_system(recording: Recording) -> Resource:
    """The only Lustre file system."""
    (found,) = recording.of_type(tokens.LUSTRE)
    return found


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_shipped_environment_has_neither_the_file_system_nor_its_driver(environment: str) -> None:
    recording = graph(environment)
    assert list(recording.of_type(tokens.LUSTRE)) == []
    assert "aws-fsx-csi-driver" not in {one.name for one in recording.of_type(tokens.ADDON)}
    assert recording.outputs["storage"]["lustre_id"] is None


def test_the_driver_is_installed_after_the_nodes_and_has_no_role() -> None:
    recording = graph("lustre")
    addon = recording.find(tokens.ADDON, "aws-fsx-csi-driver")
    assert not addon.properties.get("podIdentityAssociations")
    system = [one for one in recording.of_type(tokens.NODE_GROUP) if one.name.startswith("system-")]
    assert system
    assert all(depends_on(recording, addon, one) for one in system)


def test_a_persistent_file_system_has_its_throughput_and_the_stacks_key() -> None:
    recording = graph("lustre")
    found = file_system(recording)
    assert found.properties["deploymentType"] == "PERSISTENT_2"
    assert found.properties["perUnitStorageThroughput"] == 250
    assert found.properties["storageCapacity"] == 2400
    assert found.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "storage").urn,)


def test_a_scratch_file_system_has_neither() -> None:
    lustre = {"source": "s3://corpus", "availability_zone": "us-east-1b", "tier": "scratch"}
    found = file_system(varied({"storage": {"lustre": lustre}})).properties
    assert found["deploymentType"] == "SCRATCH_2"
    assert not {"perUnitStorageThroughput", "kmsKeyId", "automaticBackupRetentionDays"} & found.keys()


def test_the_servers_are_in_the_private_subnet_of_the_zone() -> None:
    recording = graph("lustre")
    by_urn = {one.urn: one for one in recording.resources}
    (subnet,) = (by_urn[urn] for urn in file_system(recording).property_dependencies["subnetIds"])
    assert subnet.properties["availabilityZone"] == "us-east-1b"
    assert "kubernetes.io/role/internal-elb" in subnet.properties["tags"]


def test_the_root_of_a_node_has_no_rights_in_it() -> None:
    assert file_system(graph("lustre")).properties["rootSquashConfiguration"] == {"rootSquash": "65534:65534"}


def test_it_has_no_backups_because_fsx_refuses_them_for_a_linked_file_system() -> None:
    found = file_system(graph("lustre")).properties
    assert found["automaticBackupRetentionDays"] == 0
    assert found["skipFinalBackup"] is True


def test_the_link_shows_the_source_at_the_root_and_follows_every_change() -> None:
    recording = graph("lustre")
    (link,) = recording.of_type(LINK)
    assert link.properties["dataRepositoryPath"] == "s3://corpus/imagenet"
    assert link.properties["fileSystemPath"] == "/"
    assert link.properties["batchImportMetaDataOnCreate"] is True
    assert link.properties["s3"] == {"autoImportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}
    assert link.property_dependencies["fileSystemId"] == (file_system(recording).urn,)
    assert link.delete_before_replace


def test_servers_and_nodes_reach_each_other_on_lustres_ports_only() -> None:
    recording = graph("lustre")
    servers = recording.find(tokens.SECURITY_GROUP, "lustre").urn
    paths = set()
    for type_ in (tokens.INGRESS_RULE, EGRESS_RULE):
        for rule in recording.of_type(type_):
            if not rule.name.startswith("lustre-"):
                continue
            ends = [
                "servers" if servers in rule.property_dependencies.get(end, ()) else "nodes"
                for end in ("securityGroupId", "referencedSecurityGroupId")
            ]
            fields = rule.properties
            paths.add((*ends, type_ == EGRESS_RULE, fields["ipProtocol"], fields["fromPort"], fields["toPort"]))
    assert paths == {
        (of, peer, is_egress, "tcp", first, last)
        for of, peer, is_egress in (
            ("servers", "servers", False),
            ("servers", "nodes", False),
            ("servers", "servers", True),
            ("servers", "nodes", True),
            ("nodes", "servers", False),
        )
        for first, last in ((988, 988), (1018, 1023))
    }


def test_the_ports_are_open_before_fsx_checks_them() -> None:
    recording = graph("lustre")
    rules = [one for one in recording.resources if one.name.startswith("lustre-")]
    assert len(rules) == 10
    assert all(depends_on(recording, file_system(recording), rule) for rule in rules)


def test_it_is_protected_in_staging_and_not_in_dev() -> None:
    assert file_system(with_lustre("staging")).protect
    assert not file_system(graph("lustre")).protect


def test_it_is_not_kept_after_its_removal_even_in_prod() -> None:
    assert not file_system(with_lustre("prod")).retain_on_delete


def test_jobs_know_its_id() -> None:
    recording = graph("lustre")
    assert recording.outputs["storage"]["lustre_id"].startswith("fs-")
