"""Whether the image that a job's pods would pull is in the stack's registry: minutes of waiting nodes are spared."""

from __future__ import annotations

import re

from training.cluster.errors import ClusterRefusedError

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<repository>[^@:]+)"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)


def check_image(reference: str) -> str:
    """Ask ECR for an image.

    Args:
        reference: as in a pod, by digest or tag.

    Returns:
        why it could not be asked, for a person to read; empty where the image is there.

    Raises:
        ClusterRefusedError: ECR says that it is not.
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
            raise ClusterRefusedError(
                f"image {reference} is not in the registry ({code}): the job's pods could not pull it",
                remedy="build and push it: make image PUSH=1; or check out the release whose image is there",
            ) from error
        return str(error)
    except BotoCoreError as error:
        return str(error)
    return ""
