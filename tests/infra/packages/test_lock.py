"""Reading locks."""

from __future__ import annotations

from pathlib import Path

from infra.packages.lock import Package, read_lock


def test_an_empty_lock_has_no_packages(tmp_path: Path) -> None:
    (tmp_path / "empty.lock").write_text("")
    assert list(read_lock(tmp_path / "empty.lock")) == []


def test_a_package_has_the_hashes_of_all_its_distributions(tmp_path: Path) -> None:
    entries = [
        f"a==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n",
        f"b-c==2 \\\n    --hash=sha256:{'2' * 64}\n",
    ]
    (tmp_path / "some.lock").write_text("".join(entries))
    assert list(read_lock(tmp_path / "some.lock")) == [
        Package("a", "1.0", ("0" * 64, "1" * 64)),
        Package("b-c", "2", ("2" * 64,)),
    ]
