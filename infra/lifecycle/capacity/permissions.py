"""The IAM actions that the finder and the calendar need: reads, without resource-level permissions."""

from __future__ import annotations

ACTIONS = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityBlockOfferings",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstances",
    "ec2:DescribeSpotPriceHistory",
    "ec2:GetSpotPlacementScores",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
)
"""docs/CAPACITY.md has them as a policy; the deployer's policy includes them."""
