"""ECR: a repository per image of the project, and pull-through caches of public registries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext, protected_opts
from infra.aws.encryption import Encryption
from infra.packages.derived import TAG_PREFIX
from infra.spec.protection import Protection
from infra.spec.registry_names import repository_name

_CACHE_NAMES = {"quay.io": "quay", "registry.k8s.io": "k8s", "public.ecr.aws": "ecr"}
"""Last part of a cache's repository prefix, by upstream registry. ECR allows 30 characters for the prefix."""


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """Inputs of `Registry`.

    Attributes:
        name_prefix: first part of every repository's name.
        repositories: repository name without the prefix, by image name in the release manifest; images may share one.
        keep_images: number to keep of each image of releases, and of derived images.
        untagged_days: days to keep an untagged image.
        pull_through: upstream registries to cache.
        key_arn: KMS key.
        protection: deletion protection.
    """

    name_prefix: str
    repositories: Mapping[str, str]
    keep_images: int
    untagged_days: int
    pull_through: Sequence[str]
    key_arn: pulumi.Input[str]
    protection: Protection


def pull_through_prefix(name_prefix: str, registry: str) -> str:
    """ECR repository prefix of the pull-through cache for an upstream registry."""
    return f"{name_prefix}/{_CACHE_NAMES[registry]}"


class Registry(pulumi.ComponentResource):
    """Repositories and pull-through caches.

    Attributes:
        urls: repository URL by image name in the release manifest.
    """

    urls: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Registry", name, None, opts)
        self._args = args
        made: dict[str, pulumi.Output[str]] = {}
        for image, path in args.repositories.items():
            if path not in made:
                made[path] = self._make_repository(image, path)
        self.urls = {image: made[path] for image, path in args.repositories.items()}
        for registry in args.pull_through:
            self._make_pull_through_cache(registry)
        self.register_outputs({"urls": self.urls})

    def _make_repository(self, image: str, path: str) -> pulumi.Output[str]:
        args = self._args
        opts = protected_opts(self, args.protection)
        repository = aws.ecr.Repository(
            image,
            name=repository_name(args.name_prefix, path),
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[
                aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=args.key_arn)
            ],
            force_delete=args.protection.force_destroy,
            opts=opts,
        )
        aws.ecr.LifecyclePolicy(
            image,
            repository=repository.name,
            policy=lifecycle_policy(
                keep_images=args.keep_images,
                untagged_days=args.untagged_days,
                images=[*args.repositories.values()].count(path),
            ),
            opts=opts,
        )
        return repository.repository_url

    def _make_pull_through_cache(self, registry: str) -> None:
        """ECR creates the cache's repositories from the template at the first pull; their tags follow upstream."""
        args, prefix = self._args, pull_through_prefix(self._args.name_prefix, registry)
        child_opts = pulumi.ResourceOptions(parent=self)
        template = aws.ecr.RepositoryCreationTemplate(
            registry,
            prefix=prefix,
            description=f"Mirror of {registry}",
            applied_fors=["PULL_THROUGH_CACHE"],
            image_tag_mutability="MUTABLE",
            lifecycle_policy=cache_policy(keep_images=args.keep_images, untagged_days=args.untagged_days),
            opts=child_opts,
        )
        aws.ecr.PullThroughCacheRule(
            registry,
            ecr_repository_prefix=prefix,
            upstream_registry_url=registry,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[template]),
        )


def lifecycle_policy(*, keep_images: int, untagged_days: int, images: int = 1) -> str:
    """ECR lifecycle policy of a repository of ours: expires untagged images by age, the others by number, oldest first.

    A release has `images` in it. Derived images are counted apart from those of releases: a rule counts every image that it is
    about, also one that an earlier rule is about, so a rule about `any` would expire a release after enough derived images (Amazon
    ECR user guide, "Lifecycle policy evaluation rules").
    """
    derived, released = {"tagPatternList": [f"{TAG_PREFIX}*"]}, {"tagPatternList": ["*.*"]}
    return _policy(
        _untagged(untagged_days),
        _all_but_the_newest(keep_images, "tagged", **derived),
        _all_but_the_newest(images * keep_images, "tagged", **released),
    )


def cache_policy(*, keep_images: int, untagged_days: int) -> str:
    """ECR lifecycle policy of a pull-through cache: expires untagged images by age and all images by number, oldest first."""
    return _policy(_untagged(untagged_days), _all_but_the_newest(keep_images, "any"))


def _policy(*rules: Mapping[str, Any]) -> str:
    numbered = [{"rulePriority": number, **rule, "action": {"type": "expire"}} for number, rule in enumerate(rules, 1)]
    return json.dumps({"rules": numbered})


def _untagged(days: int) -> dict[str, Any]:
    age = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": days}
    return {"description": "Images without a tag", "selection": {"tagStatus": "untagged", **age}}


def _all_but_the_newest(number: int, status: Literal["tagged", "any"], **tags: list[str]) -> dict[str, Any]:
    selection = {"tagStatus": status, **tags, "countType": "imageCountMoreThan", "countNumber": number}
    return {"description": " ".join(["All but the newest", *tags.get("tagPatternList", ())]), "selection": selection}


def make_registry(context: BuildContext, encryption: Encryption) -> Registry:
    """Make the repositories of the release's own images, and the pull-through caches."""
    registry = context.settings.registry
    args = RegistryArgs(
        name_prefix=context.name_prefix,
        repositories={name: image.repository for name, image in context.release.images.items() if image.is_ours},
        keep_images=registry.keep_images,
        untagged_days=registry.untagged_days,
        pull_through=registry.pull_through,
        key_arn=encryption.keys["registry"],
        protection=context.protection,
    )
    return Registry("registry", args, context.opts)
