"""KMS keys: one for each kind of data, so that access to one kind gives none to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.aws.iam import Statement, policy
from infra.spec.protection import Protection

KeyPurpose = Literal["cluster", "logs", "volumes", "storage", "registry", "database"]

_DESCRIPTIONS: Mapping[KeyPurpose, str] = {
    "cluster": "Envelope encryption of Kubernetes secrets",
    "logs": "CloudWatch logs of the control plane, the network and the database",
    "volumes": "Root volumes of the nodes and persistent volumes",
    "storage": "Checkpoints, artifacts and datasets",
    "registry": "Container images",
    "database": "MLflow's database and its master password",
}

_USE = (
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
    """What the keys belong to.

    Attributes:
        cluster_name: name of the EKS cluster; part of the aliases and of the log groups' names.
        account: AWS account.
        region: AWS region.
        protection: what guards the keys; a lost key is the loss of everything it encrypts.
    """

    cluster_name: str
    account: pulumi.Input[str]
    region: str
    protection: Protection


class Encryption(pulumi.ComponentResource):
    """All keys of the stack.

    Attributes:
        keys: ARN of the key by what it encrypts.
    """

    keys: Mapping[KeyPurpose, pulumi.Output[str]]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Encryption", name, None, opts)
        self._args = args
        self.keys = {purpose: self._make_key(purpose) for purpose in _DESCRIPTIONS}
        self.register_outputs({"keys": self.keys})

    def _make_key(self, purpose: KeyPurpose) -> pulumi.Output[str]:
        protection = self._args.protection
        key = aws.kms.Key(
            purpose,
            description=_DESCRIPTIONS[purpose],
            enable_key_rotation=True,
            deletion_window_in_days=protection.kms_deletion_days,
            policy=policy([self._administration(), *self._service_use(purpose)]),
            opts=pulumi.ResourceOptions(
                parent=self, protect=protection.protect, retain_on_delete=protection.retain_on_delete
            ),
        )
        aws.kms.Alias(
            purpose,
            name=f"alias/{self._args.cluster_name}/{purpose}",
            target_key_id=key.id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return key.arn

    def _administration(self) -> Statement:
        """IAM policies of the account decide who uses the key; without this statement nobody could ever change it."""
        root = pulumi.Output.concat("arn:aws:iam::", self._args.account, ":root")
        return Statement(sid="AccountByIam", actions=("kms:*",), resources=("*",), principal={"AWS": root})

    def _service_use(self, purpose: KeyPurpose) -> tuple[Statement, ...]:
        """Use by services that act for themselves; those that act for their caller need the caller's permission only."""
        match purpose:
            case "logs":
                return (self._use_by_cloudwatch(),)
            case "volumes":
                return self._use_by_autoscaling()
            case _:
                return ()

    def _use_by_cloudwatch(self) -> Statement:
        """CloudWatch Logs, for the log groups of this stack (CloudWatch Logs user guide, "Encrypt log data")."""
        region, cluster = self._args.region, self._args.cluster_name
        groups = [
            pulumi.Output.concat(f"arn:aws:logs:{region}:", self._args.account, ":log-group:", pattern)
            for pattern in (f"/aws/eks/{cluster}/*", f"/aws/vpc/{cluster}/*", f"/aws/rds/instance/{cluster}-*")
        ]
        return Statement(
            sid="CloudWatchLogs",
            actions=_USE,
            resources=("*",),
            principal={"Service": f"logs.{region}.amazonaws.com"},
            condition={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )

    def _use_by_autoscaling(self) -> tuple[Statement, ...]:
        """EC2 Auto Scaling's service-linked role, which starts the nodes and their volumes.

        The role is named in a condition: as a principal it would have to exist when the key is made, and an account
        that never had an autoscaling group does not have it.
        """
        role = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        caller = {"aws:PrincipalArn": pulumi.Output.concat("arn:aws:iam::", self._args.account, ":", role)}
        account = {"kms:CallerAccount": self._args.account}
        return (
            Statement(
                sid="AutoScalingUses",
                actions=_USE,
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


def make_encryption(context: BuildContext) -> Encryption:
    """KMS keys, one for each kind of data."""
    args = EncryptionArgs(
        cluster_name=context.cluster_name,
        account=context.account,
        region=context.settings.aws.region,
        protection=context.protection,
    )
    return Encryption("encryption", args, context.top)
