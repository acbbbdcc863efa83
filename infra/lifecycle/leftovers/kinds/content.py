"""Buckets, image repositories, log groups and secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.leftovers.found import Call, Found, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.refusals import is_closed, unless_gone
from infra.spec.names import CLUSTER_PREFIX

BUCKET = "S3 bucket"
REPOSITORY = "ECR repository"
PULL_THROUGH_RULE = "pull-through cache rule"
CREATION_TEMPLATE = "repository creation template"
LOG_GROUP = "log group"
SECRET = "secret"  # noqa: S105 - the name of a kind

_LOG_PREFIXES = ("/aws/eks/", "/aws/vpc/", "/aws/rds/instance/", "/aws/containerinsights/", "/rtp/")
"""Beginnings of log groups that the stack makes, and that EKS, RDS and VPC make again if they write after its end."""


def _find_buckets(place: Place) -> Iterator[Found]:
    """Buckets with the prefix of our names, in this region. S3 lists those of all regions, and no tags."""
    s3 = place.client("s3")
    for name in (one["Name"] for one in pages(s3, "list_buckets", "Buckets")):
        if name.startswith(CLUSTER_PREFIX):
            with unless_gone():
                try:
                    if _region_of(s3, name) == place.region:
                        yield Found(id=name, tags=_bucket_tags(s3, name))
                except ClientError as error:
                    if not is_closed(error):
                        raise
                    yield Found(id=name)  # its name alone says whose it is


def _region_of(s3: Client, name: str) -> str:
    return s3.get_bucket_location(Bucket=name)["LocationConstraint"] or "us-east-1"


def _bucket_tags(s3: Client, name: str) -> Mapping[str, str]:
    try:
        return tags_in(s3.get_bucket_tagging(Bucket=name)["TagSet"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchTagSet":
            raise
        return {}


def _remove_bucket(found: Found, place: Place) -> Iterator[Call]:
    """Every version and delete marker, then the bucket."""
    versions = place.client("s3").get_paginator("list_object_versions").paginate(Bucket=found.id)
    for page in versions:
        items = [*(page.get("Versions") or ()), *(page.get("DeleteMarkers") or ())]
        objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in items]
        if objects:
            yield Call("s3", "DeleteObjects", {"Bucket": found.id, "Delete": {"Objects": objects, "Quiet": True}})
    yield Call("s3", "DeleteBucket", {"Bucket": found.id})


def _empty_and_delete(found: Found) -> str:
    """The loop ends when no version is left, because S3 refuses to delete an empty list."""
    where = f"--region {found.region} --bucket {shlex.quote(found.id)}"
    query = "{Objects: [Versions, DeleteMarkers][].{Key: Key, VersionId: VersionId}}"
    listed = f"aws s3api list-object-versions {where} --max-items 500 --output json --query {shlex.quote(query)}"
    emptied = f'while aws s3api delete-objects {where} --delete "$({listed})" > /dev/null 2>&1; do :; done'
    return f"{emptied}; aws s3api delete-bucket {where}"


def _find_repositories(place: Place) -> Iterator[Found]:
    ecr = place.client("ecr")
    for one in pages(ecr, "describe_repositories", "repositories"):
        if one["repositoryName"].startswith(CLUSTER_PREFIX):
            with unless_gone():
                tags = ecr.list_tags_for_resource(resourceArn=one["repositoryArn"])["tags"]
                yield Found(id=one["repositoryName"], tags=tags_in(tags))


def _remove_repository(found: Found, _: Place) -> Iterator[Call]:
    yield Call("ecr", "DeleteRepository", {"repositoryName": found.id, "force": True})


def _find_log_groups(place: Place) -> Iterator[Found]:
    logs = place.client("logs")
    for prefix in _LOG_PREFIXES:
        beginning = f"{prefix}{CLUSTER_PREFIX}"
        for one in pages(logs, "describe_log_groups", "logGroups", logGroupNamePrefix=beginning):
            with unless_gone():
                arn = one["arn"].removesuffix(":*")
                tags = logs.list_tags_for_resource(resourceArn=arn).get("tags") or {}
                yield Found(id=one["logGroupName"], tags=tags)


def _find_secrets(place: Place) -> Iterator[Found]:
    """Those that no service owns: RDS deletes the secret of a master user with the instance."""
    for one in pages(place.client("secretsmanager"), "list_secrets", "SecretList"):
        if not one.get("OwningService") and not one.get("DeletedDate"):
            yield Found(id=one["ARN"], name=one["Name"], tags=tags_in(one.get("Tags")))


def _remove_secret(found: Found, _: Place) -> Iterator[Call]:
    yield Call("secretsmanager", "DeleteSecret", {"SecretId": found.id, "ForceDeleteWithoutRecovery": True})


def _delete_recoverably(found: Found) -> str:
    call = Call("secretsmanager", "DeleteSecret", {"SecretId": found.id, "RecoveryWindowInDays": 7})
    return call.command(found.region)


KINDS = (
    Kind(
        name=BUCKET,
        phase=Phase.CONTENT,
        find=_find_buckets,
        remove=_remove_bucket,
        reads=actions("s3", "ListAllMyBuckets GetBucketLocation GetBucketTagging ListBucketVersions"),
        writes=actions("s3", "DeleteObject DeleteObjectVersion DeleteBucket"),
        price=unknown,
        by_hand=_empty_and_delete,
    ),
    Kind(
        name=REPOSITORY,
        phase=Phase.CONTENT,
        find=_find_repositories,
        remove=_remove_repository,
        reads=actions("ecr", "DescribeRepositories ListTagsForResource"),
        writes=actions("ecr", "DeleteRepository"),
        price=unknown,
    ),
    Kind(
        name=PULL_THROUGH_RULE,
        phase=Phase.TEMPLATES,
        find=lambda place: (
            Found(id=one["ecrRepositoryPrefix"])
            for one in pages(place.client("ecr"), "describe_pull_through_cache_rules", "pullThroughCacheRules")
        ),
        remove=one_call("ecr", "DeletePullThroughCacheRule", "ecrRepositoryPrefix"),
        reads=actions("ecr", "DescribePullThroughCacheRules"),
        writes=actions("ecr", "DeletePullThroughCacheRule"),
    ),
    Kind(
        name=CREATION_TEMPLATE,
        phase=Phase.TEMPLATES,
        find=lambda place: (
            Found(id=one["prefix"])
            for one in pages(
                place.client("ecr"), "describe_repository_creation_templates", "repositoryCreationTemplates"
            )
        ),
        remove=one_call("ecr", "DeleteRepositoryCreationTemplate", "prefix"),
        reads=actions("ecr", "DescribeRepositoryCreationTemplates"),
        writes=actions("ecr", "DeleteRepositoryCreationTemplate"),
    ),
    Kind(
        name=LOG_GROUP,
        phase=Phase.CONTENT,
        find=_find_log_groups,
        remove=one_call("logs", "DeleteLogGroup", "logGroupName"),
        reads=actions("logs", "DescribeLogGroups ListTagsForResource"),
        writes=actions("logs", "DeleteLogGroup"),
        price=unknown,
    ),
    Kind(
        name=SECRET,
        phase=Phase.CONTENT,
        find=_find_secrets,
        remove=_remove_secret,
        reads=actions("secretsmanager", "ListSecrets"),
        writes=actions("secretsmanager", "DeleteSecret"),
        price=unknown,
        by_hand=_delete_recoverably,
    ),
)
"""Kinds of this module."""
