"""Checks that the image of a job is in the stack's registry, before nodes start for pods that cannot pull it."""

from __future__ import annotations

import re

from infra.spec.errors import RefusedError

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<repository>[^@:]+)"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)


def check_image(reference: str) -> str:
    """Look an image up in ECR.

    Args:
        reference: as in a pod, by digest or tag.

    Returns:
        why the registry could not be read; empty if the image exists.

    Raises:
        RefusedError: the image is not in ECR.
    """
    match = _ECR.fullmatch(reference)
    if match is None:
        return f"{reference} is not in ECR"
    try:
        import boto3  # noqa: PLC0415 - not in the trainer's environment
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        return "boto3 is not installed in this environment"
    image = {"imageDigest": match["digest"]} if match["digest"] else {"imageTag": match["tag"]}
    quick = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})
    ecr = boto3.client("ecr", region_name=match["region"], config=quick)
    try:
        ecr.describe_images(registryId=match["account"], repositoryName=match["repository"], imageIds=[image])
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in {"ImageNotFoundException", "RepositoryNotFoundException"}:
            raise RefusedError(
                f"image {reference} is not in the registry ({code}): the job's pods cannot pull it",
                remedy="build and push it: make image PUSH=1; or check out a release whose image exists",
            ) from error
        return str(error)
    except BotoCoreError as error:
        return str(error)
    return ""
