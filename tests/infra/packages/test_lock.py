"""Reading locks."""

from __future__ import annotations

from pathlib import Path

from infra.packages.lock import Package, read_lock


def test_a_package_has_the_hashes_of_all_its_distributions(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("")
    assert list(read_lock(lock)) == []
    hashes = [f"--hash=sha256:{digit * 64}" for digit in "012"]
    lock.write_text(f"a==1.0 \\\n    {hashes[0]} \\\n    {hashes[1]}\nb-c==2 \\\n    {hashes[2]}\n")
    assert list(read_lock(lock)) == [Package("a", "1.0", ("0" * 64, "1" * 64)), Package("b-c", "2", ("2" * 64,))]
