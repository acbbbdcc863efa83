"""Other regions that a test stack has resources in: without its roles, which are the account's, what is there could not be removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import GLOBAL_REGION
from infra.lifecycle.leftovers.kind import batches, pages, tags_in
from infra.lifecycle.leftovers.refusals import AWS_ERRORS, reason
from infra.spec.names import STACK_TAG

READS = ("ec2:DescribeRegions", "tag:GetResources")
"""IAM actions of `look_elsewhere`."""

_REQUESTS_AT_ONCE = 8
_VALUES_AT_ONCE = 20
"""Largest number of values of one tag filter (Resource Groups Tagging API reference, TagFilter)."""


class Elsewhere(NamedTuple):
    """What is in the regions that the reaper does not look in.

    Attributes:
        regions: by value of the tag `stack`, the regions with its resources.
        unknown: a line for each region that could not be asked.
    """

    regions: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]


def look_elsewhere(clients: Clients, tags: Sequence[str], *, looked: Iterable[str]) -> Elsewhere:
    """Ask the tagging API of every other region that the account has enabled.

    It lists nothing that was never tagged, and knows some resources for a while after their end.

    Args:
        clients: clients of the account.
        tags: values of the tag `stack`.
        looked: regions whose resources are known.
    """
    if not tags:
        return Elsewhere({}, ())
    known = set(looked)
    try:
        described = clients.of("ec2", next(iter(sorted(known)), GLOBAL_REGION)).describe_regions()["Regions"]
    except AWS_ERRORS as error:
        return Elsewhere({}, (f"other regions: {reason(error)}",))
    others = sorted({one["RegionName"] for one in described} - known)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        answers = dict(zip(others, pool.map(lambda region: _tagged_in(clients, region, tags), others), strict=True))
    found = {region: answer for region, answer in answers.items() if not isinstance(answer, str)}
    return Elsewhere(
        {tag: regions for tag in tags if (regions := tuple(name for name, some in found.items() if tag in some))},
        tuple(f"{region}: {answer}" for region, answer in answers.items() if isinstance(answer, str)),
    )


def _tagged_in(clients: Clients, region: str, tags: Sequence[str]) -> frozenset[str] | str:
    """Those of the tags that resources of the region have, or why that is not known. What has no region is the account's."""
    client, found = clients.of("resourcegroupstaggingapi", region), set[str]()
    try:
        for some in batches(tags, _VALUES_AT_ONCE):
            filters = [{"Key": STACK_TAG, "Values": list(some)}]
            for one in pages(client, "get_resources", "ResourceTagMappingList", TagFilters=filters):
                if one["ResourceARN"].split(":")[3] == region:
                    found.add(tags_in(one["Tags"])[STACK_TAG])
    except AWS_ERRORS as error:
        return reason(error)
    return frozenset(found)
