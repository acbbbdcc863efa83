"""KMS keys: one per kind of data, so that a grant for one kind gives no access to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext, protected_opts
from infra.aws.iam import Statement, policy_document
from infra.spec.protection import Protection

KeyPurpose = Literal["cluster", "logs", "volumes", "storage", "registry", "database"]

_DESCRIPTIONS: Mapping[KeyPurpose, str] = {
    "cluster": "Envelope encryption of Kubernetes secrets",
    "logs": "CloudWatch logs of the control plane, the network, the database and the pods",
    "volumes": "Root volumes of the nodes and persistent volumes",
    "storage": "Checkpoints, artifacts and datasets",
    "registry": "Container images",
    "database": "MLflow's database and its master password",
}

KEY_USE_ACTIONS = (
    "kms:Encrypt",
    "kms:Decrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:DescribeKey",
)


@dataclass(frozen=True, kw_only=True)
class EncryptionArgs:
    """Inputs of `Encryption`.

    Attributes:
        name_prefix: part of the aliases and the log group names.
        account: AWS account.
        region: AWS region.
        protection: deletion protection; deleting a key destroys everything it encrypts.
        purposes: the keys to make.
        volume_users: roles, not of the stack, that make and attach the volumes of pods.
    """

    name_prefix: str
    account: pulumi.Input[str]
    region: str
    protection: Protection
    purposes: Sequence[KeyPurpose]
    volume_users: Sequence[str]


class Encryption(pulumi.ComponentResource):
    """All keys of the stack.

    Attributes:
        keys: key ARN by purpose.
    """

    keys: Mapping[KeyPurpose, pulumi.Output[str]]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Encryption", name, None, opts)
        self._args = args
        self.keys = {purpose: self._make_key(purpose) for purpose in args.purposes}
        self.register_outputs({"keys": self.keys})

    def _make_key(self, purpose: KeyPurpose) -> pulumi.Output[str]:
        protection = self._args.protection
        key = aws.kms.Key(
            purpose,
            description=_DESCRIPTIONS[purpose],
            enable_key_rotation=True,
            deletion_window_in_days=protection.kms_deletion_days,
            policy=policy_document([self._allow_account(), *self._allow_services(purpose)]),
            opts=protected_opts(self, protection),
        )
        aws.kms.Alias(
            purpose,
            name=f"alias/{self._args.name_prefix}/{purpose}",
            target_key_id=key.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return key.arn

    def _allow_account(self) -> Statement:
        """Let the account's IAM policies grant use of the key; without this statement the key is unmanageable."""
        root = pulumi.Output.concat("arn:aws:iam::", self._args.account, ":root")
        return Statement(sid="AccountByIam", actions=("kms:*",), resources=("*",), principal={"AWS": root})

    def _allow_services(self, purpose: KeyPurpose) -> tuple[Statement, ...]:
        """Grants for services that act on their own behalf; other services use the caller's permissions."""
        match purpose:
            case "logs":
                return (self._allow_cloudwatch(),)
            case "volumes":
                return (*self._allow_autoscaling(), *self._allow_volume_users())
            case _:
                return ()

    def _allow_cloudwatch(self) -> Statement:
        """Allow CloudWatch Logs for the stack's log groups (CloudWatch Logs user guide, "Encrypt log data")."""
        region, prefix = self._args.region, self._args.name_prefix
        groups = [
            pulumi.Output.concat(f"arn:aws:logs:{region}:", self._args.account, ":log-group:", pattern)
            for pattern in (
                f"/aws/eks/{prefix}/*",
                f"/aws/vpc/{prefix}/*",
                f"/aws/rds/instance/{prefix}-*",
                f"/rtp/{prefix}/*",
            )
        ]
        return Statement(
            sid="CloudWatchLogs",
            actions=KEY_USE_ACTIONS,
            resources=("*",),
            principal={"Service": f"logs.{region}.amazonaws.com"},
            condition={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )

    def _allow_autoscaling(self) -> tuple[Statement, ...]:
        """Allow EC2 Auto Scaling's service-linked role, which launches nodes with encrypted volumes.

        A condition names the role, because a principal must exist when the key is created, and AWS creates this role
        with an account's first Auto Scaling group.
        """
        role = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        caller = {"aws:PrincipalArn": pulumi.Output.concat("arn:aws:iam::", self._args.account, ":", role)}
        account = {"kms:CallerAccount": self._args.account}
        return (
            Statement(
                sid="AutoScalingUses",
                actions=KEY_USE_ACTIONS,
                resources=("*",),
                principal="*",
                condition={"StringEquals": account, "ArnEquals": caller},
            ),
            Statement(
                sid="AutoScalingLendsToEbs",
                actions=("kms:CreateGrant",),
                resources=("*",),
                principal="*",
                condition={
                    "StringEquals": account,
                    "ArnEquals": caller,
                    "Bool": {"kms:GrantIsForAWSResource": "true"},
                },
            ),
        )

    def _allow_volume_users(self) -> tuple[Statement, ...]:
        """Allow the storage driver of an existing cluster, whose role has no policy of the stack."""
        if not self._args.volume_users:
            return ()
        principal = {"AWS": list(self._args.volume_users)}
        return (
            Statement(sid="DriverUses", actions=KEY_USE_ACTIONS, resources=("*",), principal=principal),
            Statement(
                sid="DriverLendsToEbs",
                actions=("kms:CreateGrant",),
                resources=("*",),
                principal=principal,
                condition={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
        )


def make_encryption(context: BuildContext) -> Encryption:
    """Make the KMS keys."""
    cluster = context.settings.cluster
    driver = cluster.foreign_drivers.get("aws-ebs-csi-driver")
    args = EncryptionArgs(
        name_prefix=context.name_prefix,
        account=context.account,
        region=context.settings.aws.region,
        protection=context.protection,
        # The secrets of an existing cluster are encrypted as its owner has chosen.
        purposes=[purpose for purpose in _DESCRIPTIONS if purpose != "cluster" or cluster.existing is None],
        volume_users=[] if driver is None else [driver],
    )
    return Encryption("encryption", args, context.opts)
