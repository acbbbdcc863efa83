"""The stack's ECR registry: login, and digests of tags."""

from __future__ import annotations

import base64
from typing import NamedTuple

from botocore.exceptions import ClientError

from infra.lifecycle.aws import Client
from infra.spec.errors import RefusedError


class Login(NamedTuple):
    """Credentials for a registry, valid for twelve hours."""

    registry: str
    user: str
    password: str


class Repository(NamedTuple):
    """An ECR repository.

    Attributes:
        registry: host, e.g. 111122223333.dkr.ecr.us-east-1.amazonaws.com.
        name: name of the repository.
    """

    registry: str
    name: str

    @classmethod
    def of(cls, url: str) -> Repository:
        """The repository at a URL of the stack's outputs: host and name, without a scheme."""
        registry, _, name = url.partition("/")
        return cls(registry, name)

    def reference(self, tag: str) -> str:
        """The full image reference of a tag."""
        return f"{self.registry}/{self.name}:{tag}"


def log_in(client: Client, repository: Repository) -> Login:
    """Credentials for the account's registry.

    Args:
        client: boto3's ECR client.
        repository: the repository to push to.

    Raises:
        RefusedError: the credentials are for another account or region than the repository's.
    """
    found = client.get_authorization_token()["authorizationData"][0]
    user, _, password = base64.b64decode(found["authorizationToken"]).decode().partition(":")
    registry = found["proxyEndpoint"].removeprefix("https://")
    if registry != repository.registry:
        raise RefusedError(
            f"the AWS credentials are for registry {registry}, the stack's is {repository.registry}",
            remedy="use credentials of the stack's account and region",
        )
    return Login(registry, user, password)


def digest(client: Client, repository: Repository, tag: str) -> str | None:
    """The digest of a tag; None if the repository has no such tag.

    Args:
        client: boto3's ECR client.
        repository: the repository.
        tag: the tag.

    Raises:
        RefusedError: the repository does not exist.
    """
    try:
        found = client.describe_images(repositoryName=repository.name, imageIds=[{"imageTag": tag}])
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "ImageNotFoundException":
            return None
        if code == "RepositoryNotFoundException":
            raise RefusedError(
                f"registry {repository.registry} has no repository {repository.name}", remedy="bring the stack up first"
            ) from error
        raise
    return str(found["imageDetails"][0]["imageDigest"])
