"""Permissions on EC2's resources, whose IDs are known only after they exist: tags limit them.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2". An action that makes a
resource is authorised for the new resource, which the provider tags in the same request, and for each resource it uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.lifecycle.deployer.grants import Grant, Scope, Table, actions, read


def _arns(*types: str) -> tuple[str, ...]:
    return tuple(f"arn:aws:ec2:{{region}}:{{account}}:{type_}/*" for type_ in types)


def _makes(action: str, type_: str, *uses: str) -> tuple[Grant, ...]:
    """The action that makes a resource of `type_`, out of existing ones."""
    made = Grant(scope=Scope.NEW, actions=actions("ec2", action), resources=_arns(type_))
    return (made, Grant(scope=Scope.OURS, actions=actions("ec2", action), resources=_arns(*uses))) if uses else (made,)


def _changes(names: str, *types: str) -> Grant:
    return Grant(scope=Scope.OURS, actions=actions("ec2", names), resources=_arns(*types))


_RULES = ("security-group", "security-group-rule")

NETWORK: Table = {
    "aws:ec2/vpc:Vpc": (
        *_makes("CreateVpc", "vpc"),
        _changes("ModifyVpcAttribute DeleteVpc", "vpc"),
        read("ec2", "DescribeVpcs DescribeVpcAttribute DescribeNetworkAcls DescribeRouteTables DescribeSecurityGroups"),
    ),
    "aws:ec2/subnet:Subnet": (
        *_makes("CreateSubnet", "subnet", "vpc"),
        _changes("ModifySubnetAttribute DeleteSubnet", "subnet"),
        read("ec2", "DescribeSubnets DescribeNetworkInterfaces DescribeAvailabilityZones"),
    ),
    "aws:ec2/internetGateway:InternetGateway": (
        *_makes("CreateInternetGateway", "internet-gateway"),
        _changes("AttachInternetGateway DetachInternetGateway", "internet-gateway", "vpc"),
        _changes("DeleteInternetGateway", "internet-gateway"),
        read("ec2", "DescribeInternetGateways"),
    ),
    "aws:ec2/eip:Eip": (
        *_makes("AllocateAddress", "elastic-ip"),
        _changes("ReleaseAddress", "elastic-ip"),
        read("ec2", "DescribeAddresses DescribeAddressesAttribute"),
    ),
    "aws:ec2/natGateway:NatGateway": (
        *_makes("CreateNatGateway", "natgateway", "subnet", "elastic-ip"),
        _changes("DeleteNatGateway", "natgateway"),
        read("ec2", "DescribeNatGateways"),
    ),
    "aws:ec2/routeTable:RouteTable": (
        *_makes("CreateRouteTable", "route-table", "vpc"),
        _changes("DeleteRouteTable", "route-table"),
        read("ec2", "DescribeRouteTables"),
    ),
    "aws:ec2/route:Route": (
        _changes("CreateRoute ReplaceRoute DeleteRoute", "route-table"),
        read("ec2", "DescribeRouteTables"),
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (
        _changes("AssociateRouteTable DisassociateRouteTable ReplaceRouteTableAssociation", "route-table", "subnet"),
        read("ec2", "DescribeRouteTables"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        *_makes("CreateVpcEndpoint", "vpc-endpoint", "vpc", "subnet", "route-table", "security-group"),
        _changes("ModifyVpcEndpoint", "vpc-endpoint", "subnet", "route-table", "security-group"),
        _changes("DeleteVpcEndpoints", "vpc-endpoint"),
        read("ec2", "DescribeVpcEndpoints DescribeVpcEndpointServices DescribePrefixLists"),
    ),
    "aws:ec2/flowLog:FlowLog": (
        *_makes("CreateFlowLogs", "vpc-flow-log", "vpc"),
        _changes("DeleteFlowLogs", "vpc-flow-log"),
        read("ec2", "DescribeFlowLogs"),
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        *_makes("CreateSecurityGroup", "security-group", "vpc"),
        # The provider removes the rule that EC2 gives a new group.
        _changes("RevokeSecurityGroupEgress DeleteSecurityGroup", "security-group"),
        read("ec2", "DescribeSecurityGroups DescribeSecurityGroupRules DescribeNetworkInterfaces"),
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": (
        Grant(
            scope=Scope.ADOPTED,
            actions=actions("ec2", "RevokeSecurityGroupIngress RevokeSecurityGroupEgress CreateTags"),
            resources=_arns("security-group"),
        ),
        read("ec2", "DescribeSecurityGroups"),
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": (
        *_makes("AuthorizeSecurityGroupIngress", "security-group-rule", "security-group"),
        _changes("ModifySecurityGroupRules RevokeSecurityGroupIngress", *_RULES),
        read("ec2", "DescribeSecurityGroupRules"),
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": (
        *_makes("AuthorizeSecurityGroupEgress", "security-group-rule", "security-group"),
        _changes("ModifySecurityGroupRules RevokeSecurityGroupEgress", *_RULES),
        read("ec2", "DescribeSecurityGroupRules"),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        *_makes("CreateLaunchTemplate", "launch-template"),
        _changes("CreateLaunchTemplateVersion ModifyLaunchTemplate DeleteLaunchTemplate", "launch-template"),
        read("ec2", "DescribeLaunchTemplates DescribeLaunchTemplateVersions"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": (
        *_makes("CreatePlacementGroup", "placement-group"),
        _changes("DeletePlacementGroup", "placement-group"),
        read("ec2", "DescribePlacementGroups"),
    ),
}
"""Grants on EC2's resources, by type."""

TAGS = (_changes("CreateTags DeleteTags", "*"),)
"""Changes of tags. Tags at creation are allowed by `create_actions`."""


def create_actions(types: Iterable[str]) -> frozenset[str]:
    """Actions in which EC2 tags what it makes, for resources of these types: values of `ec2:CreateAction`."""
    grants = (grant for type_ in types for grant in NETWORK.get(type_, ()) if grant.scope is Scope.NEW)
    return frozenset(action.removeprefix("ec2:") for grant in grants for action in grant.actions)
