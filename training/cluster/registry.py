"""Checks that the image of a job is in the stack's registry, before nodes start for pods that cannot pull it.

A stack's registry is ECR; that of a sandbox with real nodes is asked by the registry API.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from infra.spec.errors import NoAnswerError, RefusedError
from infra.spec.outputs import StackOutputs
from infra.spec.registry_names import PlainImage
from infra.spec.release import NOT_PUSHED

_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<repository>[^@:]+)"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)
_MANIFEST_TYPES = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_TIMEOUT_SECONDS = 5
_REMEDY = (
    "build and push it: make image PUSH=1 ENV=…, or FROM=… for your own; or check out a release whose image exists"
)


def check_images(outputs: StackOutputs, *references: str) -> None:
    """Look the images of a job up in their registry; warns of those that could not be checked. Raises like `check_image`."""
    if outputs.is_recorded:
        return  # the pods of fake nodes pull nothing
    for why in sorted({check_image(reference) for reference in references} - {""}):
        print(f"warning: an image was not checked in the registry: {why}", file=sys.stderr)


def check_image(reference: str) -> str:
    """Look an image up in its registry.

    Args:
        reference: as in a pod, by digest or tag.

    Returns:
        why the registry could not be read; empty if the image exists.

    Raises:
        RefusedError: the image is not in the registry, or the release says that it was never pushed.
    """
    if reference.endswith(f":{NOT_PUSHED}"):
        raise RefusedError(
            f"the release has no digest of image {reference.removesuffix(f':{NOT_PUSHED}')}: it was never pushed",
            remedy=_REMEDY,
        )
    try:
        plain = PlainImage.parse(reference)
        if plain is None:
            _found(reference, "describe_images")
        else:
            _manifest(plain, reference)
    except NoAnswerError as error:
        return str(error)
    return ""


def read_annotations(reference: str) -> Mapping[str, str]:
    """The annotations of an image's manifest; empty if it has none, or is an index.

    Args:
        reference: as in a pod, by digest or tag.

    Raises:
        RefusedError: the image is not in the registry.
        NoAnswerError: the registry could not be read.
    """
    plain = PlainImage.parse(reference)
    if plain is not None:
        return _annotations(_manifest(plain, reference))
    images = _found(reference, "batch_get_image")["images"]
    if not images:
        raise _not_there(reference, "ImageNotFound")
    return _annotations(images[0]["imageManifest"])


def _annotations(manifest: str) -> Mapping[str, str]:
    found = json.loads(manifest).get("annotations") or {}
    return {str(key): str(value) for key, value in found.items()}


def _manifest(image: PlainImage, reference: str) -> str:
    """The manifest of an image in a sandbox's registry."""
    request = urllib.request.Request(image.manifest_url, headers={"Accept": _MANIFEST_TYPES})  # noqa: S310 - http only
    try:
        # Without the proxies of the environment: the registry is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise _not_there(reference, "MANIFEST_UNKNOWN") from error
        raise NoAnswerError(f"registry {image.host}: {error}") from error
    except OSError as error:
        raise NoAnswerError(f"registry {image.host}: {getattr(error, 'reason', error)}") from error


def _found(reference: str, operation: Literal["describe_images", "batch_get_image"]) -> Any:  # noqa: ANN401 - boto3's
    """ECR's answer about an image."""
    match = _ECR.fullmatch(reference)
    if match is None:
        raise NoAnswerError(f"{reference} is not in ECR")
    try:
        import boto3  # noqa: PLC0415 - not in the trainer's environment
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError as error:
        raise NoAnswerError("boto3 is not installed in this environment") from error
    image = {"imageDigest": match["digest"]} if match["digest"] else {"imageTag": match["tag"]}
    quick = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})
    ecr = boto3.client("ecr", region_name=match["region"], config=quick)
    try:
        return getattr(ecr, operation)(
            registryId=match["account"], repositoryName=match["repository"], imageIds=[image]
        )
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in {"ImageNotFoundException", "RepositoryNotFoundException"}:
            raise _not_there(reference, code) from error
        raise NoAnswerError(str(error)) from error
    except BotoCoreError as error:
        raise NoAnswerError(str(error)) from error


def _not_there(reference: str, code: str) -> RefusedError:
    return RefusedError(
        f"image {reference} is not in the registry ({code}): the job's pods cannot pull it", remedy=_REMEDY
    )
