"""Names of an environment's ECR registry and repositories.

They follow from account, region and the stack's name prefix alone, so that images can be pushed before the stack has outputs.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from infra.spec.names import name_prefix
from infra.spec.release import Image
from infra.spec.settings.stack import StackSettings


def registry_host(account: str, region: str) -> str:
    """Host of an account's registry (Amazon ECR user guide, "Amazon ECR private registry")."""
    return f"{account}.dkr.ecr.{region}.amazonaws.com"


def repository_name(prefix: str, path: str) -> str:
    """Name of the repository for an image of ours; `path` is the image's `repository` in the release manifest."""
    return f"{prefix}/{path}"


class Registry(NamedTuple):
    """The registry of an environment.

    Attributes:
        account: AWS account.
        region: AWS region.
        name_prefix: prefix of the stack's physical names, the first part of every repository's name.
    """

    account: str
    region: str
    name_prefix: str

    @classmethod
    def of(cls, settings: StackSettings, *, account: str) -> Registry:
        """The registry of an environment in an account."""
        return cls(account, settings.aws.region, name_prefix(settings))

    @property
    def host(self) -> str:
        """The host, without a scheme."""
        return registry_host(self.account, self.region)

    @property
    def prefix(self) -> str:
        """Host and first part of the path of every repository for images of ours."""
        return f"{self.host}/{self.name_prefix}"

    def name(self, image: Image) -> str:
        """Name of the repository of an image of ours."""
        return repository_name(self.name_prefix, image.repository)


_PLAIN = re.compile(
    r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}:\d+)/(?P<repository>[^@:\s]+)(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)


class PlainImage(NamedTuple):
    """An image in a registry that an address and a port name, as a sandbox's: it speaks HTTP, and knows no login.

    Attributes:
        host: address and port of the registry.
        repository: name of the repository.
        reference: digest or tag.
    """

    host: str
    repository: str
    reference: str

    @classmethod
    def parse(cls, image: str) -> Self | None:
        """The parts of an image's reference; None if another kind of registry has it."""
        match = _PLAIN.fullmatch(image)
        return match and cls(match["host"], match["repository"], match["digest"] or match["tag"])

    @property
    def manifest_url(self) -> str:
        """URL of the manifest (OCI Distribution Specification 1.1, "Pulling manifests")."""
        return f"http://{self.host}/v2/{self.repository}/manifests/{self.reference}"
