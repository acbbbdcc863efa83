"""An environment's ECR registry: found by settings and credentials alone, so that it needs no stack outputs."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import NamedTuple

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.account.caller import caller_of
from infra.lifecycle.image.availability import MissingImage, missing_images
from infra.lifecycle.image.distribution import RemoteRepository, basic
from infra.spec.errors import RefusedError
from infra.spec.registry_names import Registry
from infra.spec.release import Image, ReleaseManifest
from infra.spec.settings import check_account, load_environment


class Login(NamedTuple):
    """Credentials for a registry, valid for twelve hours."""

    registry: str
    user: str
    password: str


@dataclass(frozen=True)
class EnvironmentRegistry:
    """The registry of an environment, with a client of its account.

    Attributes:
        environment: name of the environment.
        registry: its names.
        client: boto3's ECR client.
    """

    environment: str
    registry: Registry
    client: Client

    @classmethod
    def open(cls, environment: str, *, profile: str | None = None) -> EnvironmentRegistry:
        """The registry in the account of the credentials, which the environment must allow.

        Args:
            environment: name of the environment.
            profile: AWS profile; None: what the SDK finds.

        Raises:
            RefusedError: no credentials, or those of another account.
            SettingsError: no such environment, or its settings are invalid.
        """
        settings = load_environment(environment)
        try:
            session = boto3.Session(profile_name=profile, region_name=settings.aws.region)
        except BotoCoreError as error:
            raise RefusedError(f"{environment}: {error}", remedy="name a profile of ~/.aws/config") from error
        account = caller_of(session).account
        check_account(settings, account)
        return cls(environment, Registry.of(settings, account=account), session.client("ecr"))

    def reference(self, image: Image, tag: str) -> str:
        """The full reference of a tag."""
        return f"{self.repository(image)}:{tag}"

    def repository(self, image: Image) -> str:
        """Registry and name of the repository of an image of ours."""
        return f"{self.registry.host}/{self.registry.name(image)}"

    def missing(self, release: ReleaseManifest) -> tuple[MissingImage, ...]:
        """The images of ours that the registry lacks; see `missing_images`."""
        return missing_images(self.client, self.registry, release)

    def digest(self, image: Image, tag: str) -> str | None:
        """The digest of a tag; None if the repository has no such tag.

        Raises:
            RefusedError: the repository does not exist.
        """
        name = self.registry.name(image)
        try:
            found = self.client.describe_images(repositoryName=name, imageIds=[{"imageTag": tag}])
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ImageNotFoundException":
                return None
            if code == "RepositoryNotFoundException":
                raise RefusedError(
                    f"registry {self.registry.host} has no repository {name}",
                    remedy=f"create it: make up ENV={self.environment}",
                ) from error
            raise
        return str(found["imageDetails"][0]["imageDigest"])

    def log_in(self) -> Login:
        """Credentials for the registry.

        Raises:
            RefusedError: AWS gives credentials for the registry of another account or region.
        """
        found = self.client.get_authorization_token()["authorizationData"][0]
        user, _, password = base64.b64decode(found["authorizationToken"]).decode().partition(":")
        host = found["proxyEndpoint"].removeprefix("https://")
        if host != self.registry.host:
            raise RefusedError(
                f"the AWS credentials are for registry {host}, that of {self.environment} is {self.registry.host}",
                remedy="use credentials of the environment's account",
            )
        return Login(host, user, password)

    def remote(self, image: Image) -> RemoteRepository:
        """The repository of an image, through the registry API; raises like `log_in`."""
        login = self.log_in()
        return RemoteRepository(
            f"https://{login.registry}", self.registry.name(image), basic(login.user, login.password)
        )
