"""CloudWatch log groups, made before the services that write to them: a service's own has no retention."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws


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
