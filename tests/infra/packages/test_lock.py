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


def test_a_package_may_have_a_version_for_each_python_and_none_for_a_platform(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    markers = (
        "a==1 ; python_full_version < '3.12'",
        "a==2 ; python_full_version >= '3.12'",
        "b==1 ; sys_platform == 'win32'",
    )
    lock.write_text("".join(f"{line} \\\n    --hash=sha256:{'0' * 64}\n" for line in markers))
    for python, version in (("3.11.9", "1"), ("3.12.0", "2"), ("3.14.2", "2")):
        assert [(one.name, one.version) for one in read_lock(lock, {"python_full_version": python})] == [("a", version)]
