"""Every rule accepts the compliant stack and reports each violation."""

from __future__ import annotations

from base64 import b64encode

from infra.policy import RULES, Finding, evaluate, tokens
from infra.policy.graph import UNKNOWN
from infra.policy.rule import ResourceRule
from infra.policy.rules import RULES_BY_TOPIC
from tests.infra.policy.compliant import DENY_PLAIN, TAGS, compliant_stack, document, permit, resource, statement, trust
from tests.infra.spec.samples import Tree

BY_NAME = {rule.name: rule for rule in RULES}
P = "properties"
PRIVATE_KEY = "-----BEGIN RSA " + "PRIVATE KEY-----"
MANAGED = "arn:aws:iam::aws:policy"
WITHOUT_INLINE_RULES = "security-groups-have-descriptions-and-no-inline-rules"
USER_DATA = b64encode(PRIVATE_KEY.encode()).decode()
ENDPOINTS = {"endpointPrivateAccess": True, "endpointPublicAccess": True}
BUCKET_KEY = f"bucket-encryption.{P}.rules.0.applyServerSideEncryptionByDefault"


def role_allows(action: object, resource: object) -> Tree:
    return {f"role-policy.{P}.policy": permit(action, resource)}


def role_states(**elements: object) -> Tree:
    return {f"role-policy.{P}.policy": document(statement(**elements))}


def bucket_states(old: str, new: str) -> Tree:
    return {f"bucket-policy.{P}.policy": DENY_PLAIN.replace(old, new)}


VIOLATIONS: tuple[tuple[str, Tree, str], ...] = (
    ("buckets-use-kms-encryption", {"bucket-encryption": ...}, "not encrypted with a KMS key"),
    ("buckets-use-kms-encryption", {BUCKET_KEY: {"sseAlgorithm": "AES256"}}, "not encrypted with a KMS key"),
    ("databases-are-encrypted", {f"database.{P}.storageEncrypted": False}, "storageEncrypted is False"),
    ("databases-are-encrypted", {f"database.{P}.kmsKeyId": ...}, "kmsKeyId is not set"),
    ("file-systems-are-encrypted", {f"efs.{P}.encrypted": ...}, "encrypted is None"),
    ("file-systems-are-encrypted", {f"efs.{P}.kmsKeyId": ...}, "kmsKeyId is not set"),
    ("lustre-is-encrypted-with-a-key", {f"lustre.{P}.kmsKeyId": ...}, "kmsKeyId is not set"),
    ("lustre-is-encrypted-with-a-key", {f"lustre.{P}.deploymentType": "SCRATCH_2"}, "is of type SCRATCH_2, in prod"),
    ("lustre-is-encrypted-with-a-key", {f"lustre.{P}.deploymentType": ...}, "is of type SCRATCH_1, in prod"),
    ("lustre-squashes-root", {f"lustre.{P}.rootSquashConfiguration": ...}, "rootSquash is None"),
    ("lustre-squashes-root", {f"lustre.{P}.rootSquashConfiguration.rootSquash": "0:0"}, "rootSquash is 0:0"),
    ("lustre-has-a-security-group", {f"lustre.{P}.securityGroupIds": ...}, "uses the VPC's default security group"),
    ("stateful-resources-are-protected", {"lustre.protect": False}, "is not protected"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings": ...}, "no blockDeviceMappings"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings.0.ebs.encrypted": "false"}, "not encrypted"),
    ("node-volumes-are-encrypted", {f"template.{P}.blockDeviceMappings.0.ebs.volumeType": "gp2"}, "type gp2"),
    ("cluster-secrets-are-encrypted", {f"cluster.{P}.encryptionConfig": ...}, "does not cover secrets"),
    ("cluster-secrets-are-encrypted", {f"cluster.{P}.encryptionConfig.provider": {}}, "has no key"),
    ("repositories-are-encrypted", {f"repository.{P}.encryptionConfigurations.0.encryptionType": "AES256"}, "KMS key"),
    ("log-groups-are-encrypted", {f"logs.{P}.kmsKeyId": ""}, "kmsKeyId is not set"),
    ("keys-rotate-and-have-a-deletion-window", {f"key.{P}.enableKeyRotation": False}, "enableKeyRotation is False"),
    ("keys-rotate-and-have-a-deletion-window", {f"key.{P}.deletionWindowInDays": ...}, "deletionWindowInDays is None"),
    ("buckets-require-tls", {"bucket-policy": ...}, "no policy that denies requests without TLS"),
    ("buckets-require-tls", bucket_states('"false"', '"true"'), "no policy that denies requests without TLS"),
    ("buckets-require-tls", bucket_states('"Deny"', '"Allow"'), "no policy that denies requests without TLS"),
    ("file-systems-require-tls", {"efs-policy.references": {}}, "no policy that denies mounts without TLS"),
    ("databases-require-tls", {f"parameters.{P}.parameters.0.value": "0"}, "rds.force_ssl"),
    ("databases-require-tls", {"database.references": {}}, "rds.force_ssl"),
    ("buckets-block-public-access", {f"bucket-access.{P}.restrictPublicBuckets": ...}, "all four settings"),
    ("buckets-disable-acls", {f"bucket-ownership.{P}.rule.objectOwnership": "ObjectWriter"}, "BucketOwnerEnforced"),
    ("databases-are-private", {f"database.{P}.publiclyAccessible": True}, "publiclyAccessible is true"),
    ("api-server-access-is-restricted", {f"cluster.{P}.vpcConfig.endpointPrivateAccess": False}, "no private endpoint"),
    ("api-server-access-is-restricted", {f"cluster.{P}.vpcConfig": ENDPOINTS}, "in prod"),
    (
        "api-server-access-is-restricted",
        {f"cluster.{P}.vpcConfig": {**ENDPOINTS, "publicAccessCidrs": ["0.0.0.0/0"]}},
        "allows 0.0.0.0/0",
    ),
    ("subnets-assign-no-public-ips", {f"subnet.{P}.mapPublicIpOnLaunch": True}, "mapPublicIpOnLaunch"),
    ("no-wildcard-actions", role_allows("*", "arn:aws:s3:::b"), "allows *"),
    ("no-wildcard-actions", role_allows(["s3:Get*"], "x"), "allows s3:Get*"),
    ("no-wildcard-actions", role_states(NotAction="iam:*", Resource="x"), "allows NotAction:iam:*"),
    ("no-wildcard-actions", {f"role.{P}.inlinePolicies": [{"policy": permit("s3:*", "x")}]}, "allows s3:*"),
    ("no-wildcard-resources", role_allows(["s3:GetObject", "ec2:DescribeImages"], "*"), "allows s3:GetObject on every"),
    ("no-wildcard-resources", role_states(Action="s3:GetObject", NotResource="x"), "on every resource"),
    ("pass-role-names-the-service", role_allows("iam:PassRole", "arn:aws:iam::1:role/x"), "to any service"),
    (
        "no-anonymous-principals",
        {f"bucket-policy.{P}.policy": document(statement(Principal={"AWS": "*"}, Action="s3:GetObject"))},
        "allows every principal",
    ),
    ("no-broad-managed-policies", {f"attachment.{P}.policyArn": f"{MANAGED}/AmazonS3FullAccess"}, "AmazonS3FullAccess"),
    ("no-long-lived-credentials", {"user": resource(tokens.IAM_USER)}, "is a User"),
    ("roles-trust-only-services", {f"role.{P}.assumeRolePolicy": trust({"AWS": "1111"})}, "trusts AWS:1111"),
    ("roles-trust-only-services", {f"role.{P}.assumeRolePolicy": trust("*")}, "trusts *"),
    (
        "no-ingress-from-the-internet",
        {f"group-rule.{P}": {"ipProtocol": "tcp", "fromPort": 443, "cidrIpv4": "0.0.0.0/0"}},
        "allows 0.0.0.0/0",
    ),
    ("no-ingress-from-the-internet", {f"group.{P}.ingress": [{"ipv6CidrBlocks": ["::/0"]}]}, "allows ::/0"),
    (
        "all-protocol-ingress-names-a-security-group",
        {f"group-rule.{P}": {"ipProtocol": "-1", "cidrIpv4": "10.0.0.0/8"}},
        "every protocol from 10.0.0.0/8",
    ),
    (WITHOUT_INLINE_RULES, {f"group.{P}.description": "Managed by Pulumi"}, "no description"),
    (WITHOUT_INLINE_RULES, {f"group.{P}.egress": [{"protocol": "-1"}]}, "inline egress rules"),
    ("efa-nodes-reach-each-other", {"template.references": {}}, "no security group"),
    ("efa-nodes-reach-each-other", {f"group-rule.{P}.ipProtocol": "tcp"}, "no security group"),
    ("prod-survives-a-zone-failure", {"nat": ...}, "0 NAT gateways for 1 zones"),
    ("prod-survives-a-zone-failure", {f"database.{P}.multiAz": False}, "no standby"),
    ("nodes-require-imdsv2", {f"template.{P}.metadataOptions.httpTokens": "optional"}, "httpTokens is optional"),
    ("nodes-require-imdsv2", {f"template.{P}.metadataOptions.httpPutResponseHopLimit": 2}, "ResponseHopLimit is 2"),
    ("node-groups-have-a-launch-template", {f"gpus.{P}.launchTemplate": ...}, "no launch template"),
    ("gpu-nodes-are-tainted", {f"gpus.{P}.taints": ...}, "no taint nvidia.com/gpu"),
    ("gpu-node-repair-is-enabled", {f"gpus.{P}.nodeRepairConfig.enabled": False}, "nodeRepairConfig is not enabled"),
    ("node-updates-are-limited", {f"system.{P}.updateConfig": ...}, "sets no limit"),
    ("system-nodes-never-scale-to-zero", {f"system.{P}.scalingConfig.minSize": 0}, "minSize is 0"),
    ("empty-node-groups-have-autoscaler-tags", {"gpus-tag": ...}, "no node-template tags"),
    ("stateful-resources-are-protected", {"bucket.protect": False}, "is not protected, in prod"),
    ("stateful-resources-are-protected", {"database.protect": False}, "is not protected, in prod"),
    ("deletion-protection-is-enabled", {f"cluster.{P}.deletionProtection": ...}, "deletionProtection is None, in prod"),
    ("only-test-clusters-force-destroy", {f"bucket.{P}.forceDestroy": True}, "force-destroyed with its contents"),
    ("only-test-clusters-force-destroy", {f"repository.{P}.forceDelete": True}, "force-destroyed with its contents"),
    ("databases-are-backed-up", {f"database.{P}.backupRetentionPeriod": 7}, "7 days of backups, prod requires 35"),
    ("databases-are-backed-up", {f"database.{P}.skipFinalSnapshot": True}, "skips the final snapshot"),
    ("file-systems-are-backed-up", {f"efs-backup.{P}.backupPolicy.status": "DISABLED"}, "no backup"),
    ("buckets-are-versioned", {f"bucket-versioning.{P}.versioningConfiguration.status": "Suspended"}, "not versioned"),
    ("buckets-have-lifecycle-rules", {f"bucket-lifecycle.{P}.rules.1.status": "Disabled"}, "abortIncomplete"),
    ("buckets-have-lifecycle-rules", {"bucket-lifecycle": ...}, "noncurrentVersionExpiration"),
    ("aws-resources-are-tagged", {"efs.tags": {}}, "lacks the tags platform, environment, kind, owner, version"),
    ("aws-resources-are-tagged", {"efs.tags": {**TAGS, "owner": ""}}, "lacks the tags owner"),
    ("launched-resources-are-tagged", {f"template.{P}.tagSpecifications.1": {}}, "launches each volume without"),
    ("budgets-are-set", {"budget": ...}, "has no budget"),
    ("image-tags-are-immutable", {f"repository.{P}.imageTagMutability": "MUTABLE"}, "is MUTABLE"),
    ("images-are-scanned", {f"repository.{P}.imageScanningConfiguration": ...}, "scanOnPush"),
    ("kubernetes-version-is-pinned", {f"cluster.{P}.version": ...}, "version is not set"),
    ("node-images-are-pinned", {f"gpus.{P}.releaseVersion": ...}, "releaseVersion is not set"),
    ("addons-are-pinned", {f"addon.{P}.addonVersion": ...}, "addonVersion is not set"),
    ("charts-are-pinned", {f"chart.{P}.version": ...}, "version is not set"),
    ("images-are-pinned-by-digest", {f"pod.{P}.spec.containers.0.image": "a/b:1"}, "runs a/b:1"),
    (
        "images-are-pinned-by-digest",
        {f"pod.{P}.spec": {"workers": [{"template": {"spec": {"initContainers": [{"image": "a/b"}]}}}]}},
        "runs a/b",
    ),
    ("log-groups-have-retention", {f"logs.{P}.retentionInDays": ...}, "retentionInDays is not set"),
    ("log-groups-have-retention", {f"logs.{P}.retentionInDays": 14}, "retentionInDays is 14, in prod"),
    ("control-plane-logs-are-enabled", {f"cluster.{P}.enabledClusterLogTypes": ["api"]}, "audit, authenticator"),
    ("control-plane-log-group-is-managed", {f"logs.{P}.name": "other"}, "/aws/eks/sample/cluster is not a resource"),
    ("vpcs-have-flow-logs", {f"flow-log.{P}.trafficType": "REJECT"}, "no flow log of all traffic"),
    ("database-logs-are-exported", {f"database.{P}.enabledCloudwatchLogsExports": []}, "lacks postgresql"),
    ("outputs-hold-no-secrets", {f"stack.{P}.grafana_password": "x"}, "grafana_password looks like a secret"),
    ("outputs-hold-no-secrets", {f"stack.{P}.cluster.ca": PRIVATE_KEY}, "cluster.ca looks like a secret"),
    ("outputs-hold-no-secrets", {f"stack.{P}.uri": "postgresql://u:p@h/db"}, "uri looks like a secret"),
    ("database-passwords-are-managed", {f"database.{P}.password": "x"}, "sets a password"),
    ("database-passwords-are-managed", {f"database.{P}.manageMasterUserPassword": ...}, "is not set"),
    ("user-data-holds-no-secrets", {f"template.{P}.userData": USER_DATA}, "a secret in its user data"),
)

TEST_CLUSTER_VIOLATIONS: tuple[tuple[str, Tree, str], ...] = (
    ("test-clusters-have-an-expiry-tag", {"efs.tags": {**TAGS, "expires": ""}}, "lacks the tag expires"),
    ("budgets-are-set", {"budget": ...}, "has no budget, in test"),
)

LENIENT: tuple[tuple[str, Tree], ...] = (
    ("dev", {"bucket.protect": False}),
    ("dev", {f"cluster.{P}.deletionProtection": False}),
    ("dev", {f"database.{P}.backupRetentionPeriod": 1, f"database.{P}.multiAz": False}),
    ("dev", {"nat": ..., "budget": ..., "efs-backup": ...}),
    ("dev", {f"gpus.{P}.releaseVersion": ..., f"addon.{P}.addonVersion": ...}),
    ("dev", {f"logs.{P}.retentionInDays": 14}),
    ("dev", {f"cluster.{P}.vpcConfig": {**ENDPOINTS, "publicAccessCidrs": ["198.51.100.0/24"]}}),
    ("dev", {f"lustre.{P}.deploymentType": "SCRATCH_2", f"lustre.{P}.kmsKeyId": ...}),
    ("test", {f"bucket.{P}.forceDestroy": True, f"repository.{P}.forceDelete": True}),
    ("test", {f"database.{P}.skipFinalSnapshot": True, f"database.{P}.backupRetentionPeriod": 0}),
)


def as_text(findings: tuple[Finding, ...]) -> list[str]:
    return [str(finding) for finding in findings]


def test_the_compliant_stack_passes_every_rule() -> None:
    for kind in ("dev", "staging", "prod", "test"):
        assert as_text(evaluate(compliant_stack(kind=kind))) == [], kind


def test_the_rule_reports_the_violation() -> None:
    for kind, violations in (("prod", VIOLATIONS), ("test", TEST_CLUSTER_VIOLATIONS)):
        for rule, changes, message in violations:
            findings = as_text(evaluate(compliant_stack(changes, kind=kind), [BY_NAME[rule]]))
            assert any(message in finding for finding in findings), f"{rule}: {changes}: {findings}"


def test_other_kinds_may_do_what_prod_may_not() -> None:
    for kind, changes in LENIENT:
        assert as_text(evaluate(compliant_stack(changes, kind=kind))) == [], changes
        assert as_text(evaluate(compliant_stack(changes))) != [], changes


def test_every_rule_has_a_name_of_its_own_a_violating_case_and_a_resource_that_complies() -> None:
    assert {rule for rule, _, _ in (*VIOLATIONS, *TEST_CLUSTER_VIOLATIONS)} == set(BY_NAME)
    types = {resource.type for resource in compliant_stack().resources}
    about = {rule.name: rule.types for rule in RULES if isinstance(rule, ResourceRule) and rule.types}
    assert {name for name, wanted in about.items() if not wanted & types} == {"no-long-lived-credentials"}
    assert len(BY_NAME) == len(RULES) >= 25
    assert all(RULES_BY_TOPIC.values())


def test_unknown_values_satisfy_every_rule() -> None:
    unknown = {
        f"database.{P}.kmsKeyId": UNKNOWN,
        f"lustre.{P}.kmsKeyId": UNKNOWN,
        f"lustre.{P}.rootSquashConfiguration": UNKNOWN,
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
    assert as_text(evaluate(compliant_stack(unknown))) == []


def test_a_resource_without_a_kind_must_comply_as_in_prod() -> None:
    told = as_text(evaluate(compliant_stack({"bucket.tags": {}, "bucket.protect": False}, kind="dev")))
    assert any("in prod [stateful-resources-are-protected]" in line for line in told)
