"""Every rule is content with a sound stack, and finds each way of spoiling what it is about."""

from __future__ import annotations

from base64 import b64encode

import pytest

from infra.policy import RULES, Finding, evaluate, tokens
from infra.policy.graph import UNKNOWN
from infra.policy.rule import ResourceRule
from infra.policy.rules import RULES_BY_SUBJECT
from tests.infra.policy.sound import (
    DENY_PLAIN,
    TAGS,
    document,
    one,
    permission,
    sound,
    statement,
    trust,
)
from tests.infra.spec.samples import Tree

BY_NAME = {rule.name: rule for rule in RULES}
P = "properties"
PRIVATE_KEY = "-----BEGIN RSA " + "PRIVATE KEY-----"

SPOILED: tuple[tuple[str, Tree, str], ...] = (
    ("buckets-are-encrypted-with-a-key", {"bucket-encryption": ...}, "no encryption by a KMS key"),
    (
        "buckets-are-encrypted-with-a-key",
        {f"bucket-encryption.{P}.rules.0.applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}},
        "no encryption by a KMS key",
    ),
    ("databases-are-encrypted", {f"database.{P}.storageEncrypted": False}, "storageEncrypted is False"),
    ("databases-are-encrypted", {f"database.{P}.kmsKeyId": ...}, "kmsKeyId is not set"),
    ("file-systems-are-encrypted", {f"efs.{P}.encrypted": ...}, "encrypted is None"),
    ("file-systems-are-encrypted", {f"efs.{P}.kmsKeyId": ...}, "kmsKeyId is not set"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings": ...}, "no blockDeviceMappings"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings.0.ebs.encrypted": "false"}, "not encrypted"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings.0.ebs.volumeType": "gp2"}, "type gp2"),
    ("cluster-secrets-are-encrypted", {f"cluster.{P}.encryptionConfig": ...}, "does not cover secrets"),
    ("cluster-secrets-are-encrypted", {f"cluster.{P}.encryptionConfig.provider": {}}, "names no key"),
    ("images-are-encrypted", {f"repository.{P}.encryptionConfigurations.0.encryptionType": "AES256"}, "KMS key"),
    ("logs-are-encrypted", {f"logs.{P}.kmsKeyId": ""}, "kmsKeyId is not set"),
    ("keys-rotate-and-wait-before-they-go", {f"key.{P}.enableKeyRotation": False}, "enableKeyRotation is False"),
    ("keys-rotate-and-wait-before-they-go", {f"key.{P}.deletionWindowInDays": ...}, "deletionWindowInDays is None"),
    ("buckets-refuse-plain-http", {"bucket-policy": ...}, "no policy that denies requests without TLS"),
    (
        "buckets-refuse-plain-http",
        {f"bucket-policy.{P}.policy": DENY_PLAIN.replace('"false"', '"true"')},
        "no policy that denies requests without TLS",
    ),
    (
        "buckets-refuse-plain-http",
        {f"bucket-policy.{P}.policy": DENY_PLAIN.replace('"Deny"', '"Allow"')},
        "no policy that denies requests without TLS",
    ),
    ("file-systems-refuse-plain-mounts", {"efs-policy.references": {}}, "no policy that denies mounts without TLS"),
    ("databases-refuse-plain-connections", {f"parameters.{P}.parameters.0.value": "0"}, "rds.force_ssl"),
    ("databases-refuse-plain-connections", {"database.references": {}}, "rds.force_ssl"),
    ("buckets-block-public-access", {f"bucket-access.{P}.restrictPublicBuckets": ...}, "all four ways"),
    ("buckets-have-no-acls", {f"bucket-ownership.{P}.rule.objectOwnership": "ObjectWriter"}, "BucketOwnerEnforced"),
    ("databases-are-private", {f"database.{P}.publiclyAccessible": True}, "publiclyAccessible is true"),
    (
        "api-servers-are-not-open-to-the-world",
        {f"cluster.{P}.vpcConfig.endpointPrivateAccess": False},
        "no private endpoint",
    ),
    (
        "api-servers-are-not-open-to-the-world",
        {f"cluster.{P}.vpcConfig": {"endpointPrivateAccess": True, "endpointPublicAccess": True}},
        "in prod",
    ),
    (
        "api-servers-are-not-open-to-the-world",
        {
            f"cluster.{P}.vpcConfig": {
                "endpointPrivateAccess": True,
                "endpointPublicAccess": True,
                "publicAccessCidrs": ["0.0.0.0/0"],
            }
        },
        "admits 0.0.0.0/0",
    ),
    ("subnets-hand-out-no-public-addresses", {f"subnet.{P}.mapPublicIpOnLaunch": True}, "mapPublicIpOnLaunch"),
    ("permissions-name-their-actions", {f"role-policy.{P}.policy": permission("*", "arn:aws:s3:::b")}, "allows *"),
    ("permissions-name-their-actions", {f"role-policy.{P}.policy": permission(["s3:Get*"], "x")}, "allows s3:Get*"),
    (
        "permissions-name-their-actions",
        {f"role-policy.{P}.policy": document(statement(NotAction="iam:*", Resource="x"))},
        "allows NotAction:iam:*",
    ),
    (
        "permissions-name-their-actions",
        {f"role.{P}.inlinePolicies": [{"policy": permission("s3:*", "x")}]},
        "allows s3:*",
    ),
    (
        "permissions-name-their-resources",
        {f"role-policy.{P}.policy": permission(["s3:GetObject", "ec2:DescribeImages"], "*")},
        "allows s3:GetObject on every resource",
    ),
    (
        "permissions-name-their-resources",
        {f"role-policy.{P}.policy": document(statement(Action="s3:GetObject", NotResource="x"))},
        "on every resource",
    ),
    (
        "passing-a-role-names-the-service",
        {f"role-policy.{P}.policy": permission("iam:PassRole", "arn:aws:iam::1:role/x")},
        "iam:PassRole to any service",
    ),
    (
        "nobody-in-particular-is-trusted-with-nothing",
        {f"bucket-policy.{P}.policy": document(statement(Principal={"AWS": "*"}, Action="s3:GetObject"))},
        "allows everybody",
    ),
    (
        "no-role-is-an-administrator",
        {f"attachment.{P}.policyArn": "arn:aws:iam::aws:policy/AmazonS3FullAccess"},
        "attaches AmazonS3FullAccess",
    ),
    ("there-are-no-long-lived-credentials", {"user": one(tokens.IAM_USER)}, "is a User"),
    ("roles-trust-services", {f"role.{P}.assumeRolePolicy": trust({"AWS": "111122223333"})}, "trusts AWS:111122223333"),
    ("roles-trust-services", {f"role.{P}.assumeRolePolicy": trust("*")}, "trusts *"),
    (
        "security-groups-admit-nobody-from-the-internet",
        {f"group-rule.{P}": {"ipProtocol": "tcp", "fromPort": 443, "cidrIpv4": "0.0.0.0/0"}},
        "admits 0.0.0.0/0",
    ),
    (
        "security-groups-admit-nobody-from-the-internet",
        {f"group.{P}.ingress": [{"ipv6CidrBlocks": ["::/0"]}]},
        "admits ::/0",
    ),
    (
        "all-traffic-is-admitted-from-security-groups-only",
        {f"group-rule.{P}": {"ipProtocol": "-1", "cidrIpv4": "10.0.0.0/8"}},
        "every protocol from 10.0.0.0/8",
    ),
    ("security-groups-say-what-they-are-for", {f"group.{P}.description": "Managed by Pulumi"}, "no description"),
    ("security-groups-say-what-they-are-for", {f"group.{P}.egress": [{"protocol": "-1"}]}, "inline egress rules"),
    ("efa-reaches-its-peers", {"template.references": {}}, "no security group that admits all traffic from itself"),
    ("efa-reaches-its-peers", {f"group-rule.{P}.ipProtocol": "tcp"}, "no security group"),
    ("prod-survives-the-loss-of-a-zone", {"nat": ...}, "0 NAT gateways for 1 zones"),
    ("prod-survives-the-loss-of-a-zone", {f"database.{P}.multiAz": False}, "no standby"),
    (
        "nodes-demand-imdsv2-and-keep-it-from-pods",
        {f"template.{P}.metadataOptions.httpTokens": "optional"},
        "httpTokens is optional",
    ),
    (
        "nodes-demand-imdsv2-and-keep-it-from-pods",
        {f"template.{P}.metadataOptions.httpPutResponseHopLimit": 2},
        "httpPutResponseHopLimit is 2",
    ),
    ("node-groups-have-a-launch-template", {f"gpus.{P}.launchTemplate": ...}, "no launch template"),
    ("gpu-nodes-are-tainted", {f"gpus.{P}.taints": ...}, "no taint nvidia.com/gpu"),
    ("gpu-nodes-are-repaired", {f"gpus.{P}.nodeRepairConfig.enabled": False}, "nodeRepairConfig is not enabled"),
    ("node-updates-are-limited", {f"system.{P}.updateConfig": ...}, "sets no limit"),
    ("the-system-group-never-scales-to-zero", {f"system.{P}.scalingConfig.minSize": 0}, "minSize is 0"),
    ("groups-at-zero-tell-the-autoscaler-what-they-hold", {"gpus-tag": ...}, "no node-template tags"),
    ("stores-are-protected", {"bucket.protect": False}, "is not protected, in prod"),
    ("stores-are-protected", {"database.protect": False}, "is not protected, in prod"),
    ("services-refuse-deletion", {f"cluster.{P}.deletionProtection": ...}, "deletionProtection is None, in prod"),
    ("only-test-stores-are-emptied", {f"bucket.{P}.forceDestroy": True}, "emptied when it is destroyed"),
    ("only-test-stores-are-emptied", {f"repository.{P}.forceDelete": True}, "emptied when it is destroyed"),
    (
        "databases-are-backed-up",
        {f"database.{P}.backupRetentionPeriod": 7},
        "keeps 7 days of backups, prod promises 35",
    ),
    ("databases-are-backed-up", {f"database.{P}.skipFinalSnapshot": True}, "no final snapshot"),
    ("file-systems-are-backed-up", {f"efs-backup.{P}.backupPolicy.status": "DISABLED"}, "no backup"),
    ("buckets-are-versioned", {f"bucket-versioning.{P}.versioningConfiguration.status": "Suspended"}, "not versioned"),
    ("buckets-forget-what-nobody-needs", {f"bucket-lifecycle.{P}.rules.1.status": "Disabled"}, "abortIncomplete"),
    ("buckets-forget-what-nobody-needs", {"bucket-lifecycle": ...}, "noncurrentVersionExpiration"),
    ("everything-is-tagged", {"efs.tags": {}}, "lacks the tags platform, environment, kind, owner, version"),
    ("everything-is-tagged", {"efs.tags": {**TAGS, "owner": ""}}, "lacks the tags owner"),
    ("what-nodes-are-made-of-is-tagged", {f"template.{P}.tagSpecifications.1": {}}, "launches each volume without"),
    ("spending-is-watched", {"budget": ...}, "has no budget"),
    ("image-tags-are-immutable", {f"repository.{P}.imageTagMutability": "MUTABLE"}, "is MUTABLE"),
    ("images-are-scanned", {f"repository.{P}.imageScanningConfiguration": ...}, "scanOnPush"),
    ("the-kubernetes-version-is-pinned", {f"cluster.{P}.version": ...}, "version is not set"),
    ("node-images-are-pinned", {f"gpus.{P}.releaseVersion": ...}, "releaseVersion is not set"),
    ("addons-are-pinned", {f"addon.{P}.addonVersion": ...}, "addonVersion is not set"),
    ("charts-are-pinned", {f"chart.{P}.version": ...}, "version is not set"),
    ("images-are-named-by-digest", {f"pod.{P}.spec.containers.0.image": "a/b:1"}, "runs a/b:1"),
    (
        "images-are-named-by-digest",
        {f"pod.{P}.spec": {"workers": [{"template": {"spec": {"initContainers": [{"image": "a/b"}]}}}]}},
        "runs a/b",
    ),
    ("logs-are-kept-for-a-stated-time", {f"logs.{P}.retentionInDays": ...}, "retentionInDays is not set"),
    ("logs-are-kept-for-a-stated-time", {f"logs.{P}.retentionInDays": 14}, "retentionInDays is 14, in prod"),
    ("the-api-server-keeps-a-record", {f"cluster.{P}.enabledClusterLogTypes": ["api"]}, "audit, authenticator"),
    ("the-log-group-of-the-cluster-is-ours", {f"logs.{P}.name": "other"}, "/aws/eks/sample/cluster is no resource"),
    ("networks-keep-flow-logs", {f"flow-log.{P}.trafficType": "REJECT"}, "no flow log of all traffic"),
    ("databases-export-their-log", {f"database.{P}.enabledCloudwatchLogsExports": []}, "lacks postgresql"),
    ("outputs-hold-no-secrets", {f"stack.{P}.grafana_password": "x"}, "grafana_password looks like a secret"),
    ("outputs-hold-no-secrets", {f"stack.{P}.cluster.ca": PRIVATE_KEY}, "cluster.ca looks like a secret"),
    ("outputs-hold-no-secrets", {f"stack.{P}.uri": "postgresql://u:p@h/db"}, "uri looks like a secret"),
    ("database-passwords-are-managed", {f"database.{P}.password": "x"}, "has a password"),
    ("database-passwords-are-managed", {f"database.{P}.manageMasterUserPassword": ...}, "is not set"),
    ("user-data-holds-no-secrets", {f"template.{P}.userData": b64encode(PRIVATE_KEY.encode()).decode()}, "a secret"),
)

SPOILED_TEST_CLUSTERS: tuple[tuple[str, Tree, str], ...] = (
    ("test-clusters-carry-their-expiry", {"efs.tags": {**TAGS, "expires": ""}}, "lacks the tag expires"),
    ("spending-is-watched", {"budget": ...}, "has no budget, in test"),
)

LENIENT: tuple[tuple[str, Tree], ...] = (
    ("dev", {"bucket.protect": False}),
    ("dev", {f"cluster.{P}.deletionProtection": False}),
    ("dev", {f"database.{P}.backupRetentionPeriod": 1, f"database.{P}.multiAz": False}),
    ("dev", {"nat": ..., "budget": ..., "efs-backup": ...}),
    ("dev", {f"gpus.{P}.releaseVersion": ..., f"addon.{P}.addonVersion": ...}),
    ("dev", {f"logs.{P}.retentionInDays": 14}),
    (
        "dev",
        {
            f"cluster.{P}.vpcConfig.endpointPublicAccess": True,
            f"cluster.{P}.vpcConfig.publicAccessCidrs": ["198.51.100.0/24"],
        },
    ),
    ("test", {f"bucket.{P}.forceDestroy": True, f"repository.{P}.forceDelete": True}),
    ("test", {f"database.{P}.skipFinalSnapshot": True, f"database.{P}.backupRetentionPeriod": 0}),
)


def shown(findings: tuple[Finding, ...]) -> list[str]:
    """Findings as people read them."""
    return [str(finding) for finding in findings]


@pytest.mark.parametrize("kind", ["dev", "staging", "prod", "test"])
def test_every_rule_is_content_with_the_sound_stack(kind: str) -> None:
    assert shown(evaluate(sound(kind=kind))) == []


@pytest.mark.parametrize(("rule", "changes", "message"), SPOILED)
def test_the_rule_finds_what_is_wrong(rule: str, changes: Tree, message: str) -> None:
    findings = shown(evaluate(sound(changes), [BY_NAME[rule]]))
    assert any(message in finding for finding in findings)


@pytest.mark.parametrize(("rule", "changes", "message"), SPOILED_TEST_CLUSTERS)
def test_the_rule_finds_what_is_wrong_in_a_test_cluster(rule: str, changes: Tree, message: str) -> None:
    findings = shown(evaluate(sound(changes, kind="test"), [BY_NAME[rule]]))
    assert any(message in finding for finding in findings)


@pytest.mark.parametrize(("kind", "changes"), LENIENT)
def test_what_prod_refuses_is_allowed_where_nothing_is_lost(kind: str, changes: Tree) -> None:
    assert shown(evaluate(sound(changes, kind=kind))) == []
    assert shown(evaluate(sound(changes))) != []


def test_every_rule_has_a_case_that_breaks_it() -> None:
    assert {rule for rule, _, _ in (*SPOILED, *SPOILED_TEST_CLUSTERS)} == set(BY_NAME)


def test_every_rule_about_a_resource_meets_one_in_the_sound_stack() -> None:
    types = {subject.type for subject in sound().subjects}
    about = {rule.name: rule.types for rule in RULES if isinstance(rule, ResourceRule) and rule.types}
    assert {name for name, wanted in about.items() if not wanted & types} == {"there-are-no-long-lived-credentials"}


def test_names_of_rules_are_unique_and_subjects_are_all_used() -> None:
    assert len(BY_NAME) == len(RULES) >= 25
    assert all(RULES_BY_SUBJECT.values())


def test_what_a_preview_cannot_know_satisfies_every_rule() -> None:
    unknown = {
        f"database.{P}.kmsKeyId": UNKNOWN,
        f"bucket-policy.{P}.policy": UNKNOWN,
        f"role-policy.{P}.policy": UNKNOWN,
        f"role.{P}.assumeRolePolicy": UNKNOWN,
        f"cluster.{P}.name": UNKNOWN,
        f"cluster.{P}.encryptionConfig.provider.keyArn": UNKNOWN,
        f"template.{P}.userData": UNKNOWN,
        f"template.{P}.blockDeviceMappings.0.ebs.encrypted": UNKNOWN,
        f"stack.{P}.cluster": UNKNOWN,
        f"logs.{P}.retentionInDays": UNKNOWN,
    }
    assert shown(evaluate(sound(unknown))) == []


def test_a_resource_without_a_kind_is_held_to_the_rules_of_prod() -> None:
    bare = {"bucket.tags": {}, "bucket.protect": False}
    assert any("in prod [stores-are-protected]" in line for line in shown(evaluate(sound(bare, kind="dev"))))
