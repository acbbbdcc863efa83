"""Log groups that exist before what writes into them: one that a service makes has no retention, and stays behind."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws


def make_log_group(
    name: str, *, group: str, days: int, key: pulumi.Input[str], parent: pulumi.Resource
) -> aws.cloudwatch.LogGroup:
    """A log group.

    Args:
        name: logical name.
        group: name of the group, which the service that writes into it prescribes.
        days: retention.
        key: ARN of a KMS key whose policy admits CloudWatch Logs.
        parent: parent of the resource.
    """
    return aws.cloudwatch.LogGroup(
        name,
        name=group,
        retention_in_days=days,
        kms_key_id=key,
        opts=pulumi.ResourceOptions(parent=parent),
    )
