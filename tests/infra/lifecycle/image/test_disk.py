"""Room for a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.lifecycle.image.disk import Need, require_room
from infra.spec.errors import RefusedError
from tests.engines.small_disk import small_disk


def test_a_disk_that_is_too_small_for_everything_together_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="10m") as disk:
        needs = [
            Need(disk / "store", 6_000_000, "the build of trainer"),
            Need(disk, 5_000_000, "trainer in the registry"),
        ]
        for need in needs:
            require_room([need])
        with pytest.raises(RefusedError) as refused:
            require_room([*needs, Need(tmp_path, 1, "nothing")])
    message = refused.value.args[0]
    assert (
        f"{disk}: 10.5 MB free, 11.0 MB needed: 6.0 MB for the build of trainer, 5.0 MB for trainer in the" in message
    )
    assert str(tmp_path / "nothing") not in message
    assert "buildah rmi --prune" in refused.value.remedy


def test_nothing_needs_no_room() -> None:
    require_room([])
