"""The FSx for Lustre file system in the recorded graph of an environment that has one."""

from __future__ import annotations

import pytest

from infra.policy import tokens
from infra.preview.recording import Recording, Resource
from tests.infra.aws.graphs import depends_on, graph, varied, with_lustre

LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"


def file_system(recording: Recording) -> Resource:
    (found,) = recording.of_type(tokens.LUSTRE)
    return found


def test_a_persistent_file_system_has_its_throughput_and_the_stacks_key_and_no_backups() -> None:
    """FSx refuses backups for a file system that is linked to a bucket."""
    recording = graph("lustre")
    found = file_system(recording)
    wanted = {
        "deploymentType": "PERSISTENT_2",
        "perUnitStorageThroughput": 250,
        "storageCapacity": 2400,
        "rootSquashConfiguration": {"rootSquash": "65534:65534"},
        "automaticBackupRetentionDays": 0,
        "skipFinalBackup": True,
    }
    assert {key: found.properties[key] for key in wanted} == wanted
    assert found.property_dependencies["kmsKeyId"] == (recording.find(tokens.KEY, "storage").urn,)
    subnet = recording.find(tokens.SUBNET, "private-us-east-1b")
    assert found.property_dependencies["subnetIds"] == (subnet.urn,)
    assert recording.outputs["storage"]["lustre_id"].startswith("fs-")


def test_a_scratch_file_system_has_none_of_these() -> None:
    lustre = {"source": "s3://corpus", "availability_zone": "us-east-1b", "tier": "scratch"}
    found = file_system(varied({"storage": {"lustre": lustre}})).properties
    assert found["deploymentType"] == "SCRATCH_2"
    assert not {"perUnitStorageThroughput", "kmsKeyId", "automaticBackupRetentionDays"} & found.keys()


@pytest.mark.extended
def test_it_is_protected_in_staging_and_not_in_dev_and_never_kept_after_its_removal() -> None:
    kinds = {kind: file_system(with_lustre(kind)) for kind in ("dev", "staging", "prod")}
    assert {kind for kind, one in kinds.items() if one.protect} == {"staging", "prod"}
    assert not any(one.retain_on_delete for one in kinds.values())


def test_the_driver_follows_the_nodes_and_the_file_system_its_open_ports() -> None:
    recording = graph("lustre")
    addon = recording.find(tokens.ADDON, "aws-fsx-csi-driver")
    assert not addon.properties.get("podIdentityAssociations")
    system = [one for one in recording.of_type(tokens.NODE_GROUP) if one.name.startswith("system-")]
    assert system
    assert all(depends_on(recording, addon, one) for one in system)
    rules = [one for one in recording.resources if one.name.startswith("lustre-")]
    assert len(rules) == 10
    assert all(depends_on(recording, file_system(recording), rule) for rule in rules)


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
