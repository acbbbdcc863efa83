"""What a requirements.txt may say, and how it relates to the platform's packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.packages.requirements import Platform, missing_packages, read_requirements, unmet
from infra.spec.errors import SettingsError

PLATFORM = Platform(
    locked={"numpy": "2.4.1", "torch": "2.15.0", "ruamel-yaml": "0.19.1", "setuptools": "84.2.1"},
    installed={"numpy": "2.4.1", "torch": "2.15.0+cpu", "ruamel-yaml": "0.19.1"}.get,
)


def read(folder: Path, content: str | bytes, **environment: str) -> list[str]:
    (folder / "requirements.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return [str(one) for one in read_requirements(folder, environment=environment)]


def missing(folder: Path, content: str) -> list[str]:
    """The requirements of a file that the platform does not meet."""
    read(folder, content)
    return [str(one) for one in missing_packages(folder, read_requirements(folder), PLATFORM)]


def test_an_empty_file_or_none_requires_nothing(tmp_path: Path) -> None:
    assert read_requirements(tmp_path) == ()
    for content in ("", "\n\n", "# timm\n   # einops\r\n", "\ufeff"):
        assert read(tmp_path, content) == [], content


def test_comments_continuations_and_line_ends_are_those_of_pip(tmp_path: Path) -> None:
    text = "\ufefftimm>=1 # models\r\neinops \\\n  ==0.8.2\nPillow#1\n"
    with pytest.raises(SettingsError, match=r"line 4: Pillow#1: "):
        read(tmp_path, text)
    assert read(tmp_path, text.replace("#1", "")) == ["timm>=1", "einops==0.8.2", "Pillow"]


def test_a_marker_leaves_out_what_another_machine_needs(tmp_path: Path) -> None:
    text = "a; sys_platform == 'linux'\nb; sys_platform == 'win32'\nc; python_version < '3'\n"
    assert read(tmp_path, text, sys_platform="linux") == ['a; sys_platform == "linux"']
    assert read(tmp_path, text, sys_platform="win32") == ['b; sys_platform == "win32"']


def test_lines_that_cannot_be_used_are_named_at_once_with_number_and_what_to_do(tmp_path: Path) -> None:
    for line, remedy in (
        ("-r base.txt", "write its lines into this file"),
        ("--constraint=c.txt", "write its lines into this file"),
        ("-e .", "the code folder itself is on the import path"),
        ("--extra-index-url //example.com/simple", "set UV_DEFAULT_INDEX"),
        ("timm==1.0 --hash=sha256:00", "records the hashes itself"),
        ("--pre", "option --pre is not supported"),
        ("git+https://example.com/a.git@0f", "publish it in your package index"),
        ("timm @ https://example.com/timm.whl", "publish it in your package index"),
        ("./timm-1.0-py3-none-any.whl", "publish it in your package index"),
        ("timm-1.0-py3-none-any.whl", "publish it in your package index"),
        ("../timm", "publish it in your package index"),
        ("timm=1.0", "expected"),
        ("timm>>1", "expected"),
        ("two words", "expected"),
    ):
        with pytest.raises(SettingsError) as refused:
            read(tmp_path, f"einops\n# comment\n{line}\n")
        assert f"line 3: {line}: " in str(refused.value), line
        assert remedy in str(refused.value), line
    with pytest.raises(SettingsError, match=r"(?s)line 1: .*line 3: "):
        read(tmp_path, "-e .\neinops\n?\n")


def test_a_login_in_an_address_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, "--extra-index-url //user:word@example.com/simple\n")
    assert "word" not in str(refused.value)
    assert "//***@example.com/simple" in str(refused.value)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    for content, said in (
        ("timm\n".encode("utf-16"), "UTF-16, as PowerShell"),
        (b"timm\n# caf\xe9\n", "not UTF-8: byte 10, in line 2"),
    ):
        with pytest.raises(SettingsError, match=said):
            read(tmp_path, content)


def test_only_what_the_platform_has_is_not_missing(tmp_path: Path) -> None:
    assert missing(tmp_path, "NumPy>=2\ntorch==2.15.0\nruamel.yaml\nEinops\n") == ["Einops"]
    assert missing(tmp_path, "setuptools\n") == ["setuptools"], "locked, and not installed"
    assert missing(tmp_path, "torch[optree]\n") == ["torch[optree]"], "an extra is left to the resolver"


def test_contradictions_are_reported_package_by_package(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        missing(tmp_path, "numpy<2\ntimm\nTorch==2.3.0\nsetuptools<80\nruamel_yaml\n")
    told = str(refused.value).splitlines()[1:-1]
    assert told == [
        "  Torch==2.3.0: the platform has 2.15.0+cpu",
        "  numpy<2: the platform has 2.4.1",
        "  setuptools<80: the platform has 84.2.1",
    ]


def test_what_an_environment_does_not_meet_is_told_with_its_version(tmp_path: Path) -> None:
    read(tmp_path, "a\nb>=2\nc\n")
    has = {"a": "1", "b": "1.5"}
    assert list(unmet(read_requirements(tmp_path), has.get)) == ["b>=2: has 1.5", "c: not installed"]


def test_what_an_extra_needs_is_looked_for_too(tmp_path: Path) -> None:
    read(tmp_path, "a[fast]\nb\n")
    has = {"a": "1", "b": "1", "d": "1"}
    needs = {
        "a": ["plain", 'c; extra == "fast"', 'd[more]>2; extra == "fast"', 'e; extra == "slow"'],
        "b": ['f; extra == "fast"'],
    }
    found = list(unmet(read_requirements(tmp_path), has.get, lambda name: needs.get(name, [])))
    assert found == ["a[fast]: c: not installed", "a[fast]: d[more]>2: has 1"]
