"""Load balancers and target groups, which controllers in the cluster make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.leftovers.found import Found, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, batches, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.refusals import is_gone

LOAD_BALANCER = "load balancer"
_TAGGED_AT_ONCE = 20
"""Largest number of resources of one DescribeTags (Elastic Load Balancing API references)."""


def _find_load_balancers(place: Place) -> Iterator[Found]:
    yield from _find_v2(place, "describe_load_balancers", "LoadBalancers", "LoadBalancerArn", "LoadBalancerName")


def _find_target_groups(place: Place) -> Iterator[Found]:
    yield from _find_v2(place, "describe_target_groups", "TargetGroups", "TargetGroupArn", "TargetGroupName")


def _find_v2(place: Place, operation: str, key: str, arn: str, name: str) -> Iterator[Found]:
    elb = place.client("elbv2")
    names = {one[arn]: one[name] for one in pages(elb, operation, key)}
    for one in _descriptions(elb, "ResourceArns", list(names)):
        yield Found(id=one["ResourceArn"], name=names[one["ResourceArn"]], tags=tags_in(one["Tags"]))


def _find_classic(place: Place) -> Iterator[Found]:
    elb = place.client("elb")
    names = [one["LoadBalancerName"] for one in pages(elb, "describe_load_balancers", "LoadBalancerDescriptions")]
    for one in _descriptions(elb, "LoadBalancerNames", names):
        yield Found(id=one["LoadBalancerName"], tags=tags_in(one["Tags"]))


def _descriptions(elb: Client, parameter: str, ids: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The tags of each. One that is removed meanwhile fails the request for all of them: then they are asked for one by one."""
    for some in batches(ids, _TAGGED_AT_ONCE):
        try:
            yield from elb.describe_tags(**{parameter: some})["TagDescriptions"]
        except ClientError as error:
            if not is_gone(error):
                raise
            if len(some) > 1:
                for one in some:
                    yield from _descriptions(elb, parameter, [one])


KINDS = (
    Kind(
        name=LOAD_BALANCER,
        phase=Phase.LOAD_BALANCERS,
        find=_find_load_balancers,
        remove=one_call("elbv2", "DeleteLoadBalancer", "LoadBalancerArn"),
        reads=actions("elasticloadbalancing", "DescribeLoadBalancers DescribeTags"),
        writes=actions("elasticloadbalancing", "DeleteLoadBalancer"),
        price=unknown,
    ),
    Kind(
        name="classic load balancer",
        phase=Phase.LOAD_BALANCERS,
        find=_find_classic,
        remove=one_call("elb", "DeleteLoadBalancer", "LoadBalancerName"),
        reads=actions("elasticloadbalancing", "DescribeLoadBalancers DescribeTags"),
        writes=actions("elasticloadbalancing", "DeleteLoadBalancer"),
        price=unknown,
    ),
    Kind(
        name="target group",
        phase=Phase.TARGET_GROUPS,
        find=_find_target_groups,
        remove=one_call("elbv2", "DeleteTargetGroup", "TargetGroupArn"),
        reads=actions("elasticloadbalancing", "DescribeTargetGroups DescribeTags"),
        writes=actions("elasticloadbalancing", "DeleteTargetGroup"),
    ),
)
"""Kinds of this module."""
