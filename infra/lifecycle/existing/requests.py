"""Requests to EC2 and EKS, repeated where AWS is busy, and what their answers have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.config import Config

from infra.lifecycle.account.aws import Client

RETRIES = Config(retries={"mode": "standard", "max_attempts": 5})
"""Botocore's standard retries, of throttled requests and server errors too."""


def pages(ec2: Client, operation: str, key: str, filters: Mapping[str, list[str]]) -> Iterator[Mapping[str, Any]]:
    """What EC2 describes, over all pages.

    Args:
        ec2: an `ec2` client.
        operation: e.g. `describe_subnets`.
        key: where its answer has the resources, e.g. `Subnets`.
        filters: values by name of a filter.
    """
    asked = [{"Name": name, "Values": values} for name, values in filters.items()]
    for page in ec2.get_paginator(operation).paginate(Filters=asked):
        yield from page[key]


def tags_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Tags of a resource of EC2."""
    return {one["Key"]: one["Value"] for one in found.get("Tags") or ()}
