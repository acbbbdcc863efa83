"""Which of our own images an environment's registry lacks: their pods would wait for an image that cannot come."""

from __future__ import annotations

from typing import Literal, NamedTuple

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client
from infra.spec.registry_names import Registry
from infra.spec.release import ReleaseManifest

Reason = Literal["digest unresolved", "repository missing", "not in the registry"]


class MissingImage(NamedTuple):
    """An image of ours that pods cannot pull.

    Attributes:
        name: name in the release manifest.
        reason: what is missing first.
    """

    name: str
    reason: Reason


_REASONS: dict[str, Reason] = {
    "RepositoryNotFoundException": "repository missing",
    "ImageNotFoundException": "not in the registry",
}


def missing_images(client: Client, registry: Registry, release: ReleaseManifest) -> tuple[MissingImage, ...]:
    """The images of ours that an environment's registry lacks, in the order of the release.

    A missing repository is reported before an unresolved digest: without it, the image cannot be pushed either.

    Args:
        client: boto3's ECR client, for the region of the registry.
        registry: registry of the environment.
        release: the release manifest.

    Raises:
        ClientError: AWS refused the request.
    """
    found = []
    for name, image in release.images.items():
        if image.is_ours:
            reason = _reason(client, registry.account, registry.name(image), image.digest)
            if reason is not None:
                found.append(MissingImage(name, reason))
    return tuple(found)


def _reason(client: Client, account: str, repository: str, digest: str | None) -> Reason | None:
    where = {"registryId": account, "repositoryName": repository}
    try:
        if digest is None:
            client.describe_repositories(registryId=account, repositoryNames=[repository])
            return "digest unresolved"
        client.describe_images(**where, imageIds=[{"imageDigest": digest}])
    except ClientError as error:
        reason = _REASONS.get(error.response["Error"]["Code"])
        if reason is None:
            raise
        return reason
    return None
