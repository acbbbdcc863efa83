"""Wheels made by hand, in a folder that uv installs from instead of a package index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def wheel(folder: Path, name: str, version: str, *, needs: Sequence[str] = (), tag: str = "py3-none-any") -> Path:
    """Write a wheel whose only module and program, named after it, have its version (PyPA's binary distribution format, 1.0)."""
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {one}\n" for one in needs)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n\n\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = f"{info}/RECORD"
    listed = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in {**files, record: f"{listed}{record},,\n"}.items():
            archive.writestr(path, text)
    return file


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def use_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have uv install from a folder alone, without a network and without what it has cached."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in {"FIND_LINKS": str(folder), "NO_INDEX": "1", "OFFLINE": "1", "NO_CONFIG": "1"}.items():
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "cache"))
