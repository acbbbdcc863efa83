"""KMS keys and IAM: roles, policies, instance profiles and OIDC providers."""

from __future__ import annotations

from collections.abc import Iterator

from botocore.exceptions import ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.leftovers.found import Call, Found, Key, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, one_call, pages, tags_in, unknown
from infra.lifecycle.leftovers.refusals import is_closed, unless_gone

KEY = "KMS key"
ALIAS = "KMS alias"
ROLE = "IAM role"
_OF_AWS = ("/aws-service-role/", "/aws-reserved/")
"""Paths of roles that AWS makes and deletes itself."""

_ENDING = ("PendingDeletion", "PendingReplicaDeletion")

SHORTEST_WINDOW_DAYS = 7
"""Shortest waiting period before KMS deletes a key (AWS KMS API reference, ScheduleKeyDeletion)."""


def _find_keys(place: Place) -> Iterator[Found]:
    """The account's own keys. One whose deletion is scheduled costs nothing and counts as gone.

    A key whose policy does not let the account's IAM policies in is somebody else's: the stack's do.
    """
    kms = place.client("kms")
    for id_ in (one["KeyId"] for one in pages(kms, "list_keys", "Keys")):
        with unless_gone():
            try:
                yield from _open_key(kms, id_)
            except ClientError as error:
                if not is_closed(error):
                    raise


def _open_key(kms: Client, id_: str) -> Iterator[Found]:
    key = kms.describe_key(KeyId=id_)["KeyMetadata"]
    if key.get("KeyManager") == "CUSTOMER" and key["KeyState"] not in _ENDING:
        pairs = [*pages(kms, "list_resource_tags", "Tags", KeyId=id_)]
        tags = tags_in(pairs, key="TagKey", value="TagValue")
        yield Found(id=id_, name=key.get("Description", ""), tags=tags)


def _schedule_deletion(found: Found, _: Place) -> Iterator[Call]:
    yield Call("kms", "ScheduleKeyDeletion", {"KeyId": found.id, "PendingWindowInDays": SHORTEST_WINDOW_DAYS})


def _find_aliases(place: Place) -> Iterator[Found]:
    for one in pages(place.client("kms"), "list_aliases", "Aliases"):
        if not one["AliasName"].startswith("alias/aws/"):
            target = one.get("TargetKeyId")
            yield Found(id=one["AliasName"], parents=(Key(KEY, target),) if target else ())


def _find_roles(place: Place) -> Iterator[Found]:
    iam = place.client("iam")
    for one in pages(iam, "list_roles", "Roles"):
        if not one["Path"].startswith(_OF_AWS):
            with unless_gone():
                tags = [*pages(iam, "list_role_tags", "Tags", RoleName=one["RoleName"])]
                yield Found(id=one["RoleName"], tags=tags_in(tags))


def _remove_role(found: Found, place: Place) -> Iterator[Call]:
    iam, name = place.client("iam"), {"RoleName": found.id}
    for policy in [*pages(iam, "list_attached_role_policies", "AttachedPolicies", **name)]:
        yield Call("iam", "DetachRolePolicy", {**name, "PolicyArn": policy["PolicyArn"]})
    for policy in [*pages(iam, "list_role_policies", "PolicyNames", **name)]:
        yield Call("iam", "DeleteRolePolicy", {**name, "PolicyName": policy})
    for profile in [*pages(iam, "list_instance_profiles_for_role", "InstanceProfiles", **name)]:
        profile_name = {"InstanceProfileName": profile["InstanceProfileName"]}
        yield Call("iam", "RemoveRoleFromInstanceProfile", {**profile_name, **name})
    yield Call("iam", "DeleteRole", name)


def _find_profiles(place: Place) -> Iterator[Found]:
    for one in pages(place.client("iam"), "list_instance_profiles", "InstanceProfiles"):
        roles = [role["RoleName"] for role in one["Roles"]]
        parents = tuple(Key(ROLE, role) for role in roles)
        yield Found(id=one["InstanceProfileName"], parents=parents, facts={"roles": roles})


def _remove_profile(found: Found, _: Place) -> Iterator[Call]:
    name = {"InstanceProfileName": found.id}
    for role in found.facts["roles"]:
        yield Call("iam", "RemoveRoleFromInstanceProfile", {**name, "RoleName": role})
    yield Call("iam", "DeleteInstanceProfile", name)


def _find_policies(place: Place) -> Iterator[Found]:
    iam = place.client("iam")
    for one in pages(iam, "list_policies", "Policies", Scope="Local"):
        with unless_gone():
            tags = [*pages(iam, "list_policy_tags", "Tags", PolicyArn=one["Arn"])]
            yield Found(id=one["Arn"], name=one["PolicyName"], tags=tags_in(tags))


def _remove_policy(found: Found, place: Place) -> Iterator[Call]:
    iam, arn = place.client("iam"), {"PolicyArn": found.id}
    for role in [*pages(iam, "list_entities_for_policy", "PolicyRoles", **arn)]:
        yield Call("iam", "DetachRolePolicy", {"RoleName": role["RoleName"], **arn})
    for version in [*pages(iam, "list_policy_versions", "Versions", **arn)]:
        if not version["IsDefaultVersion"]:
            yield Call("iam", "DeletePolicyVersion", {**arn, "VersionId": version["VersionId"]})
    yield Call("iam", "DeletePolicy", arn)


def _find_providers(place: Place) -> Iterator[Found]:
    iam = place.client("iam")
    for one in pages(iam, "list_open_id_connect_providers", "OpenIDConnectProviderList"):
        with unless_gone():
            arn = {"OpenIDConnectProviderArn": one["Arn"]}
            tags = [*pages(iam, "list_open_id_connect_provider_tags", "Tags", **arn)]
            yield Found(id=one["Arn"], tags=tags_in(tags))


KINDS = (
    Kind(
        name=ALIAS,
        phase=Phase.KEYS,
        find=_find_aliases,
        remove=one_call("kms", "DeleteAlias", "AliasName"),
        reads=actions("kms", "ListAliases"),
        writes=actions("kms", "DeleteAlias"),
    ),
    Kind(
        name=KEY,
        phase=Phase.KEYS,
        find=_find_keys,
        remove=_schedule_deletion,
        reads=actions("kms", "ListKeys DescribeKey ListResourceTags"),
        writes=actions("kms", "ScheduleKeyDeletion"),
        price=unknown,
    ),
    Kind(
        name="instance profile",
        phase=Phase.PROFILES,
        find=_find_profiles,
        remove=_remove_profile,
        reads=actions("iam", "ListInstanceProfiles"),
        writes=actions("iam", "RemoveRoleFromInstanceProfile DeleteInstanceProfile"),
        is_global=True,
    ),
    Kind(
        name=ROLE,
        phase=Phase.ROLES,
        find=_find_roles,
        remove=_remove_role,
        reads=actions(
            "iam",
            "ListRoles ListRoleTags ListAttachedRolePolicies ListRolePolicies ListInstanceProfilesForRole",
        ),
        writes=actions("iam", "DetachRolePolicy DeleteRolePolicy RemoveRoleFromInstanceProfile DeleteRole"),
        is_global=True,
    ),
    Kind(
        name="IAM policy",
        phase=Phase.ROLES,
        find=_find_policies,
        remove=_remove_policy,
        reads=actions("iam", "ListPolicies ListPolicyTags ListEntitiesForPolicy ListPolicyVersions"),
        writes=actions("iam", "DetachRolePolicy DeletePolicyVersion DeletePolicy"),
        is_global=True,
    ),
    Kind(
        name="OIDC provider",
        phase=Phase.ROLES,
        find=_find_providers,
        remove=one_call("iam", "DeleteOpenIDConnectProvider", "OpenIDConnectProviderArn"),
        reads=actions("iam", "ListOpenIDConnectProviders ListOpenIDConnectProviderTags"),
        writes=actions("iam", "DeleteOpenIDConnectProvider"),
        is_global=True,
    ),
)
"""Kinds of this module."""
