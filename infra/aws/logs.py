"""CloudWatch log groups, made before the services that write to them: a service's own has no retention."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.aws.encryption import Encryption
from infra.spec import names


def make_log_group(
    name: str, *, group: str, days: int, key: pulumi.Input[str], parent: pulumi.Resource
) -> aws.cloudwatch.LogGroup:
    """Make a log group.

    Args:
        name: logical name.
        group: physical name, which the writing service prescribes.
        days: retention in days.
        key: ARN of a KMS key whose policy allows CloudWatch Logs.
        parent: parent of the resource.
    """
    return aws.cloudwatch.LogGroup(
        name,
        name=group,
        retention_in_days=days,
        kms_key_id=key,
        opts=pulumi.ResourceOptions(parent=parent),
    )


class ContainerLogs(pulumi.ComponentResource):
    """The log group of the pods' logs, which Fluent Bit writes to.

    Attributes:
        arn: ARN of the log group, without the suffix for its streams.
    """

    arn: pulumi.Output[str]

    def __init__(
        self, name: str, *, group: str, days: int, key: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("rtp:aws:ContainerLogs", name, None, opts)
        self.arn = make_log_group(name, group=group, days=days, key=key, parent=self).arn
        self.register_outputs({"arn": self.arn})


def make_container_logs(context: BuildContext, encryption: Encryption) -> ContainerLogs | None:
    """Make the log group of the pods' logs; None if they are not shipped to CloudWatch."""
    group = names.container_log_group(context.settings)
    if group is None:
        return None
    days = context.settings.logs.retention_days
    return ContainerLogs("container-logs", group=group, days=days, key=encryption.keys["logs"], opts=context.opts)
