"""Which images ECR expires, by its documented evaluation of lifecycle policies."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

from infra.aws.registry import cache_policy, lifecycle_policy

RELEASE = "0.1.0-cuda-0123456789ab"
DERIVED = "custom-0123456789ab"


def matches(selection: dict[str, Any], tag: str | None) -> bool:
    """Whether a rule is about an image: the patterns of one list must all match one of its tags."""
    if selection["tagStatus"] == "any":
        return True
    if selection["tagStatus"] == "untagged" or tag is None:
        return selection["tagStatus"] == "untagged" and tag is None
    return all(fnmatchcase(tag, pattern) for pattern in selection["tagPatternList"])


def expired(policy: str, tags: list[str | None]) -> list[str | None]:
    """The tags of the images that a policy expires by their number; `tags` are in the order of their pushes.

    A rule counts all images that it is about, also those that a rule of higher priority is about, but does not expire these
    (Amazon ECR user guide, "Lifecycle policy evaluation rules").
    """
    found: set[int] = set()
    claimed: set[int] = set()
    for rule in sorted(json.loads(policy)["rules"], key=lambda one: int(one["rulePriority"])):
        selection = rule["selection"]
        about = [number for number, tag in enumerate(tags) if matches(selection, tag)]
        if selection["countType"] == "imageCountMoreThan":
            found |= set(about[: max(0, len(about) - selection["countNumber"])]) - claimed
        claimed |= set(about)
    return [tags[number] for number in sorted(found)]


def test_images_of_releases_and_derived_ones_do_not_push_out_each_other() -> None:
    policy = lifecycle_policy(keep_images=3, untagged_days=7)
    tags: list[str | None] = [f"{RELEASE}-{number}" for number in range(3)]
    tags += [f"{DERIVED}-{number}" for number in range(5)]
    assert expired(policy, tags) == [f"{DERIVED}-0", f"{DERIVED}-1"]
    tags = [f"{DERIVED}-0", *(f"{RELEASE}-{number}" for number in range(4))]
    assert expired(policy, tags) == [f"{RELEASE}-0"]
    both: list[str | None] = [f"{tag}-{number}" for number in range(4) for tag in (RELEASE, f"{RELEASE}-session")]
    assert expired(lifecycle_policy(keep_images=3, untagged_days=7, images=2), both) == both[:2]
    assert expired(cache_policy(keep_images=2, untagged_days=7), ["v1", "latest", "1.2"]) == ["v1"]


def test_a_rule_about_any_image_is_evaluated_last_as_ecr_requires() -> None:
    for policy in (lifecycle_policy(keep_images=3, untagged_days=7), cache_policy(keep_images=3, untagged_days=7)):
        rules = json.loads(policy)["rules"]
        assert [rule["rulePriority"] for rule in rules] == list(range(1, len(rules) + 1))
        assert "any" not in [rule["selection"]["tagStatus"] for rule in rules[:-1]]
