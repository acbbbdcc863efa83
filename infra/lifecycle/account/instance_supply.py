"""What EC2 lets an account start: its vCPU quotas, the zones that offer an instance type, and what a zone's name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.lifecycle.account.aws import Client


def read_quota(client: Client, code: str) -> Mapping[str, Any]:
    """A quota of the ec2 service; AWS's default if the account has no applied value.

    Args:
        client: a `service-quotas` client.
        code: its code, L-….
    """
    try:
        quota: Mapping[str, Any] = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    except client.exceptions.NoSuchResourceException:
        quota = client.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    return quota


def offered_zones(client: Client, types: set[str]) -> dict[str, frozenset[str]]:
    """Zones that offer each instance type to the account; types that no zone offers are left out.

    Args:
        client: an `ec2` client.
        types: instance types.
    """
    pages = client.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted(types)}]
    )
    pairs = [(one["InstanceType"], one["Location"]) for page in pages for one in page["InstanceTypeOfferings"]]
    return {name: frozenset(zone for other, zone in pairs if other == name) for name, _ in pairs}


def zone_ids(client: Client) -> dict[str, str]:
    """ID of each zone of the region by its name; the same name is another zone in another account.

    Args:
        client: an `ec2` client.
    """
    zones = client.describe_availability_zones()["AvailabilityZones"]
    return {one["ZoneName"]: one["ZoneId"] for one in zones}
