"""Which test stacks may be removed, by their tags and the time; and where and what the reaper refuses."""

from __future__ import annotations

import pytest

from infra.lifecycle.leftovers.expiry import Standing, TestStack, find_test_stacks
from infra.lifecycle.leftovers.found import Found
from infra.lifecycle.leftovers.guards import by_settings, check_place, choose
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.settings import load_environment
from tests.infra.lifecycle.leftovers.conftest import NOW
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, stack_tags

LATER, EARLIER = "2030-01-01T00:00:01+00:00", "2029-12-31T23:59:59+00:00"


def stacks(*tags: dict[str, str], environment: str = "test-1") -> tuple[TestStack, ...]:
    """The test stacks of resources with these tags, besides those of a stack's."""
    found = [
        Found(id=f"vpc-{number}", kind="VPC", region="us-east-1", tags={**stack_tags(environment), **one})
        for number, one in enumerate(tags)
    ]
    return find_test_stacks(found, account=ACCOUNT, now=NOW)


def standing(*expiries: str) -> tuple[Standing, str]:
    """The standing of a test stack whose resources have these expiries."""
    (stack,) = stacks(*({"kind": "test", "expires": expiry} if expiry else {"kind": "test"} for expiry in expiries))
    return stack.standing, stack.says


def test_the_tag_says_whether_a_stack_has_expired_and_the_latest_of_several_counts() -> None:
    cases = {
        Standing.EXPIRED: (EARLIER, NOW.isoformat(), "2030-01-01T01:30:00+02:00", "2029-12-31T23:59:59Z"),
        Standing.LIVE: (LATER, "2029-12-31T23:30:00-01:00"),
        Standing.UNREADABLE_EXPIRY: ("2029-12-31T23:59:59", "2029-12-31", "yesterday", "1"),
        Standing.NO_EXPIRY: ("",),
    }
    for expected, expiries in cases.items():
        for expiry in expiries:
            assert standing(expiry)[0] is expected, expiry
    assert standing(EARLIER, LATER) == (Standing.LIVE, LATER)
    assert standing(EARLIER, "") == (Standing.EXPIRED, EARLIER)
    assert standing(EARLIER, "soon") == (Standing.UNREADABLE_EXPIRY, f"{EARLIER}, soon")


def test_what_is_not_tagged_as_a_test_cluster_is_none() -> None:
    others = [{"kind": kind} for kind in ("prod", "dev", "Test")]
    others += [{}, {"kind": "test", "platform": "another"}, {"kind": "test", "stack": "another/test-1"}]
    for tags in others:
        assert stacks({**tags, "expires": EARLIER}) == (), tags


def test_a_stack_of_another_kind_in_its_resources_or_settings_is_never_chosen() -> None:
    (stack,) = found = stacks({"kind": "test", "expires": EARLIER}, {"kind": "prod", "expires": EARLIER})
    assert (stack.standing, stack.says) == (Standing.CONTRADICTORY, "kind prod and test")
    assert choose(found, named=()) == ()
    with pytest.raises(RefusedError, match="test-1 is not only a test cluster: kind prod and test"):
        choose(found, named=["test-1"])
    found = stacks({"kind": "test", "expires": EARLIER}, environment="dev")
    assert choose(found, named=()) == found
    judged = by_settings(found, [load_environment("dev")])
    assert choose(judged, named=()) == ()
    with pytest.raises(RefusedError, match="dev is not only a test cluster: kind dev in its settings"):
        choose(judged, named=["dev"])


def remains(environment: str, *more: Found) -> list[Found]:
    """What is left of a cluster whose tagged resources are gone."""
    cluster = f"rtp-{environment}"
    return [
        Found(id="vol-1", kind="EBS volume", region="us-east-1", tags={f"kubernetes.io/cluster/{cluster}": "owned"}),
        Found(id=f"/aws/eks/{cluster}/cluster", kind="log group", region="us-east-1"),
        *more,
    ]


def test_what_is_left_of_a_test_cluster_without_its_tags_is_an_orphan() -> None:
    found = find_test_stacks(remains("test-1"), account=ACCOUNT, now=NOW)
    assert [(one.name.environment, one.standing, len(one.found)) for one in found] == [
        ("test-1", Standing.NO_EXPIRY, 2)
    ]
    assert choose(found, named=()) == ()
    assert choose(found, named=["test-1"]) == found


def orphans(kind: str, id_: str, **tags: str) -> list[tuple[str, Standing]]:
    one = Found(id=id_, kind=kind, region="us-east-1", tags=tags)
    return [(stack.name.environment, stack.standing) for stack in find_test_stacks([one], account=ACCOUNT, now=NOW)]


def test_a_fixed_name_alone_makes_an_orphan_and_what_only_looks_like_it_does_not() -> None:
    for kind, id_ in (
        ("RDS snapshot", "rtp-test-1-mlflow"),
        ("S3 bucket", f"rtp-test-1-checkpoints-{ACCOUNT}"),
        ("ECR repository", "rtp-test-1/trainer"),
        ("secret", "ray-train-platform/test-1/alert-webhook"),
        ("SNS topic", "rtp-test-1-alerts"),
        ("budget", "rtp-test-1"),
        ("KMS alias", "alias/rtp-test-1/logs"),
        ("log group", "/aws/rds/instance/rtp-test-1-mlflow/postgresql"),
    ):
        assert orphans(kind, id_) == [("test-1", Standing.NO_EXPIRY)], kind
    for environment in ("dev", "testing"):
        assert find_test_stacks(remains(environment), account=ACCOUNT, now=NOW) == (), environment
    assert orphans("EBS volume", "rtp-test-1") == []
    assert orphans("S3 bucket", "rtp-test-1-backup-123456789012") == []
    assert orphans("S3 bucket", f"rtp-test-1-state-{ACCOUNT}") == []
    assert orphans("EBS volume", "x", **{"kubernetes.io/cluster/rtp-test-1": "shared"}) == []
    assert orphans("EBS volume", "x", **{"kubernetes.io/cluster/other-rtp-test-1": "owned"}) == []


def test_what_is_left_of_a_stack_that_its_tags_show_is_a_part_of_it() -> None:
    live = Found(id="vpc-1", kind="VPC", tags={**stack_tags("test-1"), "kind": "test", "expires": LATER})
    (stack,) = find_test_stacks(remains("test-1", live), account=ACCOUNT, now=NOW)
    assert (stack.standing, len(stack.found)) == (Standing.LIVE, 3)
    other = Found(id="vpc-1", kind="VPC", tags={**stack_tags("test-1"), "kind": "dev"})
    assert find_test_stacks(remains("test-1", other), account=ACCOUNT, now=NOW) == ()


def test_an_orphan_is_chosen_only_by_name_and_a_live_stack_never() -> None:
    orphan, live = stacks({"kind": "test"}), stacks({"kind": "test", "expires": LATER}, environment="test-2")
    expired = stacks({"kind": "test", "expires": EARLIER}, environment="test-3")
    found = (*orphan, *live, *expired)
    assert choose(found, named=()) == expired
    assert choose(found, named=["ray-train-platform/test-1"]) == orphan
    assert choose(found, named=["test-3", "test-1"]) == (*orphan, *expired)
    with pytest.raises(RefusedError, match=f"test-2 expires at {LATER[:19]}"):
        choose(found, named=["test-2"])
    with pytest.raises(RefusedError, match="no test cluster test-4 in this account"):
        choose(found, named=["test-4"])


def test_the_account_must_be_the_one_meant_and_none_of_production() -> None:
    environments = [load_environment(name) for name in ("dev", "staging", "prod")]
    check_place(ACCOUNT, wanted=None, needs_account=False, environments=environments)
    check_place(ACCOUNT, wanted=ACCOUNT, needs_account=True, environments=environments)
    with pytest.raises(SettingsError, match="YES=1 removes resources of whatever account"):
        check_place(ACCOUNT, wanted=None, needs_account=True, environments=environments)
    with pytest.raises(RefusedError, match=f"credentials are of account {ACCOUNT}, not of 111122223333"):
        check_place(ACCOUNT, wanted="111122223333", needs_account=True, environments=environments)
    (account,) = load_environment("prod").aws.allowed_accounts
    with pytest.raises(RefusedError, match="may hold prod, a production environment"):
        check_place(account, wanted=account, needs_account=True, environments=environments)
