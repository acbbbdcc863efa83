"""Protection of an environment by kind."""

from __future__ import annotations

from infra.spec.protection import EnvironmentKind, protection_of


def test_prod_cannot_be_deleted_by_accident_and_a_test_cluster_leaves_nothing() -> None:
    prod, test = protection_of(EnvironmentKind.PROD), protection_of(EnvironmentKind.TEST)
    kept = ("protect", "retain_on_delete", "deletion_protection", "final_snapshot")
    assert [getattr(prod, name) for name in kept] == [True] * 4
    assert [getattr(test, name) for name in kept] == [False] * 4
    assert (prod.force_destroy, test.force_destroy, test.backup_days) == (False, True, 0)


def test_only_a_test_clusters_stores_are_emptied_on_destroy_and_periods_are_within_awss_limits() -> None:
    for kind in EnvironmentKind:
        protection = protection_of(kind)
        assert protection.force_destroy == (not protection.final_snapshot), kind
        assert 7 <= protection.kms_deletion_days <= 30, kind
        assert 0 <= protection.backup_days <= 35, kind
