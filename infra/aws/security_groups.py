"""Security groups of services that clients reach at one port."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws


def make_service_group(
    name: str,
    *,
    description: str,
    vpc_id: pulumi.Input[str],
    port: int,
    clients: str,
    client_group_id: pulumi.Input[str] | None = None,
    client_cidr: pulumi.Input[str] | None = None,
    opts: pulumi.ResourceOptions,
) -> aws.ec2.SecurityGroup:
    """A security group with one rule.

    Args:
        name: logical name of the group and its rule.
        description: what is behind the group.
        vpc_id: its VPC.
        port: TCP port of the service.
        clients: description of the rule.
        client_group_id: group of the clients, or None.
        client_cidr: range of the clients' addresses, or None.
        opts: options of both resources.
    """
    group = aws.ec2.SecurityGroup(name, vpc_id=vpc_id, description=description, opts=opts)
    aws.vpc.SecurityGroupIngressRule(
        name,
        security_group_id=group.id,
        description=clients,
        referenced_security_group_id=client_group_id,
        cidr_ipv4=client_cidr,
        ip_protocol="tcp",
        from_port=port,
        to_port=port,
        opts=opts,
    )
    return group
