"""The network that everything else is in, whether the stack makes it or finds it, and the EFA security group."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

ALL_PROTOCOLS = "-1"


class Network(pulumi.ComponentResource):
    """A VPC with a private subnet per zone, and the stack's security group for EFA.

    Attributes:
        vpc_id: the VPC.
        private_subnet_ids: private subnet by zone.
        efa_security_group_id: security group of EFA interfaces, which allows all traffic among its members.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: Mapping[str, pulumi.Output[str]]
    efa_security_group_id: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        """Register the component; a subclass sets VPC and subnets, and calls `_finish`."""
        super().__init__("rtp:aws:Network", name, None, opts)
        self._child_opts = pulumi.ResourceOptions(parent=self)

    def _finish(self) -> None:
        self.efa_security_group_id = self._make_efa_security_group()
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": self.private_subnet_ids})

    def _make_efa_security_group(self) -> pulumi.Output[str]:
        """EFA traffic needs rules in both directions that refer to the group itself.

        Source: EC2 user guide, "Get started with EFA and NCCL", step "Prepare an EFA-enabled security group".
        """
        group = aws.ec2.SecurityGroup(
            "efa", vpc_id=self.vpc_id, description="EFA interfaces: all traffic among themselves", opts=self._child_opts
        )
        for direction in (aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule):
            direction(
                "efa",
                security_group_id=group.id,
                description="All traffic among members",
                referenced_security_group_id=group.id,
                ip_protocol=ALL_PROTOCOLS,
                opts=self._child_opts,
            )
        return group.id


class ExistingNetwork(Network):
    """A VPC that the stack does not make: no resource but the EFA security group.

    Args:
        name: name of the component.
        vpc_id: the VPC.
        subnet_ids: its private subnet by zone.
        opts: options of the component.
    """

    def __init__(self, name: str, vpc_id: str, subnet_ids: Mapping[str, str], opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, opts)
        self.vpc_id = pulumi.Output.from_input(vpc_id)
        self.private_subnet_ids = {zone: pulumi.Output.from_input(id_) for zone, id_ in subnet_ids.items()}
        self._finish()
