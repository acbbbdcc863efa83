"""The S3 bucket that keeps Pulumi's state: created, or completed while it is empty; otherwise only checked.

The state has every ID and setting of a stack. Whoever writes it controls what the next `up` changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client
from infra.spec.errors import RefusedError
from infra.spec.names import name_prefix
from infra.spec.settings import StackSettings

OLD_VERSION_DAYS = 90
"""Days that an older version of a state stays: time to notice a bad one, and to restore it."""

_PUBLIC_ACCESS = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
_ENCRYPTIONS = frozenset({"AES256", "aws:kms", "aws:kms:dsse"})
_ABSENT = frozenset({"404", "NoSuchBucket"})


def state_bucket_name(settings: StackSettings, *, account: str) -> str:
    """Name of an environment's state bucket; contains the account because bucket names are globally unique."""
    return f"{name_prefix(settings)}-state-{account}"


@dataclass(frozen=True, kw_only=True)
class StateBucket:
    """A bucket for state.

    Attributes:
        name: its name.
        region: its region.
        account: the account that must own it.
    """

    name: str
    region: str
    account: str

    @property
    def login(self) -> str:
        """The argument of `pulumi login`."""
        return f"s3://{self.name}?region={self.region}"


def ensure(bucket: StateBucket, client: Client) -> bool:
    """Create the bucket, or complete one that is empty, and check its settings.

    Args:
        bucket: the bucket.
        client: boto3's S3 client in the bucket's region.

    Returns:
        whether the bucket is new.

    Raises:
        RefusedError: the bucket belongs to another account, is in another region, or has content and is not secure.
    """
    is_new = not _exists(bucket, client)
    if is_new:
        # us-east-1 is the default location, which S3 does not accept by name.
        place = {} if bucket.region == "us-east-1" else {"LocationConstraint": bucket.region}
        configuration = {"CreateBucketConfiguration": place} if place else {}
        client.create_bucket(Bucket=bucket.name, ObjectOwnership="BucketOwnerEnforced", **configuration)
    if _is_empty(bucket, client):
        _configure(bucket, client)
    problems = tuple(_problems(bucket, client))
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise RefusedError(
            f"bucket {bucket.name} has content and {len(problems)} wrong setting(s):{lines}",
            remedy="correct them, or move the content; an empty bucket is configured",
        )
    return is_new


def _exists(bucket: StateBucket, client: Client) -> bool:
    try:
        answer = client.head_bucket(Bucket=bucket.name, ExpectedBucketOwner=bucket.account)
    except ClientError as error:
        if error.response["Error"]["Code"] in _ABSENT:
            return False
        raise RefusedError(
            f"bucket {bucket.name} is not account {bucket.account}'s, or these credentials may not use it: {error}",
            remedy="a bucket name is global: if another account took it, use a bucket of your own with `pulumi login`",
        ) from error
    region = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", bucket.region)
    if region != bucket.region:
        raise RefusedError(
            f"bucket {bucket.name} is in {region}, aws.region is {bucket.region}", remedy="delete it, or set aws.region"
        )
    return True


def _is_empty(bucket: StateBucket, client: Client) -> bool:
    found = client.list_object_versions(Bucket=bucket.name, MaxKeys=1)
    return not (found.get("Versions") or found.get("DeleteMarkers"))


def _configure(bucket: StateBucket, client: Client) -> None:
    name = bucket.name
    client.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=_PUBLIC_ACCESS)
    client.put_bucket_ownership_controls(
        Bucket=name, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    )
    client.put_bucket_encryption(
        Bucket=name,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
    )
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [_LIFECYCLE]})
    client.put_bucket_policy(Bucket=name, Policy=json.dumps(_policy(name)))


_LIFECYCLE: Mapping[str, Any] = {
    "ID": "old-versions",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "NoncurrentVersionExpiration": {"NoncurrentDays": OLD_VERSION_DAYS},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
}


def _policy(name: str) -> dict[str, Any]:
    arn = f"arn:aws:s3:::{name}"
    deny = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [deny]}


def _problems(bucket: StateBucket, client: Client) -> Iterator[str]:
    """Every setting that is not as a state bucket needs it."""
    name = bucket.name
    access = _asked(lambda: client.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"])
    open_ = [key for key in _PUBLIC_ACCESS if not access.get(key)]
    if open_:
        yield f"public access: {', '.join(open_)} must be on"
    versioning = client.get_bucket_versioning(Bucket=name).get("Status", "off")
    if versioning != "Enabled":
        yield f"versioning is {versioning}, must be Enabled: an overwritten state is lost without it"
    encryption = _asked(lambda: client.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"])
    used = {
        rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm") for rule in encryption.get("Rules", ())
    }
    if not used & _ENCRYPTIONS:
        yield "encryption is off, must be AES256 or aws:kms"
    ownership = _asked(lambda: client.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"])
    if {"BucketOwnerEnforced"} != {rule["ObjectOwnership"] for rule in ownership.get("Rules", ())}:
        yield "object ownership must be BucketOwnerEnforced: ACLs could give access"
    if not _denies_without_tls(_asked(lambda: json.loads(client.get_bucket_policy(Bucket=name)["Policy"]))):
        yield "the bucket policy must deny requests without TLS (aws:SecureTransport false)"
    lifecycle = _asked(lambda: client.get_bucket_lifecycle_configuration(Bucket=name))
    if not any("NoncurrentVersionExpiration" in rule for rule in lifecycle.get("Rules", ())):
        yield "no lifecycle rule expires old versions"


def _asked(question: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The bucket's configuration; empty if it has none of the kind."""
    try:
        return question()
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return {}
        raise


def _denies_without_tls(policy: Mapping[str, Any]) -> bool:
    return any(
        statement.get("Effect") == "Deny"
        and statement.get("Principal") in ("*", {"AWS": "*"})
        and statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport") == "false"
        for statement in policy.get("Statement", ())
    )
