"""Protection of an environment by kind."""

from __future__ import annotations

import pytest

from infra.spec.protection import EnvironmentKind, protection_of


def test_a_test_cluster_leaves_nothing() -> None:
    protection = protection_of(EnvironmentKind.TEST)
    assert protection.force_destroy
    assert [protection.protect, protection.retain_on_delete, protection.deletion_protection] == [False] * 3
    assert not protection.final_snapshot
    assert protection.backup_days == 0


def test_prod_cannot_be_deleted_by_accident() -> None:
    protection = protection_of(EnvironmentKind.PROD)
    assert protection.protect
    assert protection.retain_on_delete
    assert protection.deletion_protection
    assert protection.final_snapshot
    assert not protection.force_destroy


@pytest.mark.parametrize("kind", EnvironmentKind)
def test_only_a_test_clusters_stores_are_emptied_on_destroy(kind: EnvironmentKind) -> None:
    protection = protection_of(kind)
    assert protection.force_destroy == (not protection.final_snapshot)


@pytest.mark.parametrize("kind", EnvironmentKind)
def test_key_deletion_and_backup_periods_are_within_awss_limits(kind: EnvironmentKind) -> None:
    protection = protection_of(kind)
    assert 7 <= protection.kms_deletion_days <= 30
    assert 0 <= protection.backup_days <= 35
