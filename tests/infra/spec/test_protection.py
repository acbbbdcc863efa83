"""Protection of an environment by kind."""

from __future__ import annotations

from infra.spec.protection import EnvironmentKind, protection_of


def test_only_a_test_clusters_stores_are_emptied_on_destroy_and_periods_are_within_awss_limits() -> None:
    for kind in EnvironmentKind:
        protection = protection_of(kind)
        assert protection.force_destroy == (not protection.final_snapshot), kind
        assert 7 <= protection.kms_deletion_days <= 30, kind
        assert 0 <= protection.backup_days <= 35, kind
