"""ECR: a repository for each image of ours, and mirrors of public registries where asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.context import BuildContext
from infra.aws.encryption import Encryption
from infra.spec.protection import Protection

_MIRRORS = {"quay.io": "quay", "registry.k8s.io": "k8s", "public.ecr.aws": "ecr"}
"""Last part of a mirror's prefix by registry: short, ECR allows 30 characters for the whole."""


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """The registry's shape.

    Attributes:
        cluster_name: name of the EKS cluster, the prefix of every repository.
        repositories: name of the repository below the prefix by the image's name in the release manifest.
        keep_images: newest tagged images that are kept in each.
        untagged_days: days an image without a tag is kept.
        pull_through: public registries to mirror.
        key_arn: KMS key.
        protection: what guards the images.
    """

    cluster_name: str
    repositories: Mapping[str, str]
    keep_images: int
    untagged_days: int
    pull_through: Sequence[str]
    key_arn: pulumi.Input[str]
    protection: Protection


def mirror_prefix(cluster_name: str, registry: str) -> str:
    """First part of the name under which a public registry's images are pulled from ECR."""
    return f"{cluster_name}/{_MIRRORS[registry]}"


class Registry(pulumi.ComponentResource):
    """The repositories.

    Attributes:
        urls: repository URL by the image's name in the release manifest.
    """

    urls: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("rtp:aws:Registry", name, None, opts)
        self._args = args
        self.urls = {image: self._make_repository(image, path) for image, path in args.repositories.items()}
        for registry in args.pull_through:
            self._make_mirror(registry)
        self.register_outputs({"urls": self.urls})

    def _make_repository(self, image: str, path: str) -> pulumi.Output[str]:
        args = self._args
        guarded = pulumi.ResourceOptions(
            parent=self, protect=args.protection.protect, retain_on_delete=args.protection.retain_on_delete
        )
        repository = aws.ecr.Repository(
            image,
            name=f"{args.cluster_name}/{path}",
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[
                aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=args.key_arn)
            ],
            force_delete=args.protection.force_destroy,
            opts=guarded,
        )
        aws.ecr.LifecyclePolicy(
            image,
            repository=repository.name,
            policy=lifecycle(keep_images=args.keep_images, untagged_days=args.untagged_days),
            opts=guarded,
        )
        return repository.repository_url

    def _make_mirror(self, registry: str) -> None:
        """A pull-through cache. Its repositories appear at the first pull, after the template; tags move upstream."""
        args, prefix = self._args, mirror_prefix(self._args.cluster_name, registry)
        below = pulumi.ResourceOptions(parent=self)
        template = aws.ecr.RepositoryCreationTemplate(
            registry,
            prefix=prefix,
            description=f"Mirror of {registry}",
            applied_fors=["PULL_THROUGH_CACHE"],
            image_tag_mutability="MUTABLE",
            lifecycle_policy=lifecycle(keep_images=args.keep_images, untagged_days=args.untagged_days),
            opts=below,
        )
        aws.ecr.PullThroughCacheRule(
            registry,
            ecr_repository_prefix=prefix,
            upstream_registry_url=registry,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[template]),
        )


def lifecycle(*, keep_images: int, untagged_days: int) -> str:
    """ECR lifecycle policy: untagged images go by age, tagged ones by number, the oldest first."""
    rules = [
        {
            "rulePriority": 1,
            "description": "Images without a tag",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": untagged_days,
            },
            "action": {"type": "expire"},
        },
        {
            "rulePriority": 2,
            "description": "All but the newest",
            "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": keep_images},
            "action": {"type": "expire"},
        },
    ]
    return json.dumps({"rules": rules})


def make_registry(context: BuildContext, encryption: Encryption) -> Registry:
    """Repositories for the release's images that are ours."""
    registry = context.settings.registry
    args = RegistryArgs(
        cluster_name=context.cluster_name,
        repositories={name: image.repository for name, image in context.release.images.items() if image.is_ours},
        keep_images=registry.keep_images,
        untagged_days=registry.untagged_days,
        pull_through=registry.pull_through,
        key_arn=encryption.keys["registry"],
        protection=context.protection,
    )
    return Registry("registry", args, context.top)
