"""Policy: which paths of a code folder are copied, and which are left out because of their name or content."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from infra.spec.errors import SettingsError

LIMIT_BYTES = 100 * 2**20
"""Largest code folder, in bytes: code and notebooks are far smaller, and data has its own place."""

HEAD_BYTES = 64 * 2**10
"""Bytes at the start of a file in which secrets are looked for."""

SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".tox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that every machine makes for itself."""

PARTIAL_SUFFIX = ".rtp-part"
"""Ending of a file that is being written."""

SECRET = "looks like a secret"  # noqa: S105 - a reason
MADE_BY_PROGRAM = "made by a program"

_LONGEST_PATH = 1024
_OFTEN_INSTALLED = frozenset({"tests", "test", "examples", "docs", "scripts", "setup", "conftest"})
"""Modules that packages install by mistake, and that projects have without importing them."""
_NOT_IMPORTED = frozenset({"__main__", "__init__"})
"""Modules of a folder that is a package or a program itself."""
_OURS = frozenset({"training", "infra", "platform_charts", "observability", "tune"})
_SECRET_FOLDERS = frozenset({".aws", ".ssh", ".kube", ".gnupg", ".docker"})
_SECRET_NAMES = (
    *(".env", ".env.*", "*.env", ".netrc", ".pypirc", ".npmrc", ".pgpass", ".git-credentials", ".htpasswd"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "kubeconfig", "kubeconfig.*", "credentials", "credentials.*"),
    *("secrets.*", "service-account*.json", "*.tfstate", "*.tfstate.backup"),
)
_EXAMPLES = (".env.example", ".env.sample", ".env.template", "*.pub", "secrets.py", "credentials.py")
_SECRET_CONTENT = re.compile(
    rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----"
    rb"|aws_secret_access_key\s*[=:]\s*[\"']?[A-Za-z0-9/+]{40}"
    rb"|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}|\bhf_[A-Za-z0-9]{34}\b",
    re.IGNORECASE,
)


def check_path(path: str) -> None:
    """Refuse a path that is not one of a file inside its folder, on every system.

    Args:
        path: relative, with slashes.

    Raises:
        SettingsError: names the path and the rule.
    """
    shown = path.encode(errors="backslashreplace").decode()
    if any(0xD800 <= ord(one) <= 0xDFFF for one in path):
        raise SettingsError(f"file name {shown!r} is not UTF-8", remedy="rename the file")
    if not path or len(path.encode()) > _LONGEST_PATH:
        raise SettingsError(f"path {shown!r} must have 1 to {_LONGEST_PATH} bytes", remedy="rename the file")
    if "\\" in path or any(ord(one) < 32 or ord(one) == 127 for one in path):
        raise SettingsError(f"file name {shown!r} has a backslash or a control character", remedy="rename the file")
    if path.startswith("/") or {"", ".", ".."} & set(path.split("/")):
        raise SettingsError(f"path {shown!r} is not inside its folder")


def skipped(path: str) -> tuple[str, str] | None:
    """The part of a path that is left out because of its name, and why; a folder ends with a slash. None keeps the path."""
    *folders, name = PurePosixPath(path).parts
    for depth, folder in enumerate(folders, start=1):
        if folder in SKIPPED_FOLDERS or folder in _SECRET_FOLDERS:
            reason = SECRET if folder in _SECRET_FOLDERS else MADE_BY_PROGRAM
            return "/".join((*folders[:depth], "")), reason
    lowered = name.lower()
    if name.endswith((PARTIAL_SUFFIX, ".pyc")):
        return path, MADE_BY_PROGRAM
    if _matches(lowered, _SECRET_NAMES) and not _matches(lowered, _EXAMPLES):
        return path, SECRET
    return None


def has_secret(head: bytes) -> bool:
    """Whether a file begins with a private key or an access token within its first `HEAD_BYTES` bytes."""
    return _SECRET_CONTENT.search(head) is not None


def check_modules(paths: Iterable[str]) -> None:
    """Refuse modules at the top of a code folder that Python would import in place of its own, or never because of ours.

    Raises:
        SettingsError: names the files.
    """
    tops = {path.split("/")[0] for path in paths if path.endswith(".py")}
    found = sorted(top for top in tops if top.removesuffix(".py") in _OURS | sys.stdlib_module_names)
    if found:
        is_ours = _OURS.issubset(found)
        raise SettingsError(
            f"{', '.join(found)} at the top of the code folder: Python or the trainer has a module of that name",
            remedy="this is the platform itself: name a folder of your own"
            if is_ours
            else "rename it, or put it into a package",
        )


def check_installed(paths: Iterable[str], folder: Path) -> None:
    """Refuse modules at the top of a code folder that an installed package hides.

    Raises:
        SettingsError: names the modules, and where Python would import them from.
    """
    found = set(paths)
    tops = {path.removesuffix(".py") for path in found if "/" not in path and path.endswith(".py")}
    tops |= {path.split("/")[0] for path in found if path.count("/") == 1 and path.endswith("/__init__.py")}
    for top in sorted(tops - _OFTEN_INSTALLED - _NOT_IMPORTED):
        spec = find_spec(top) if top.isidentifier() else None
        origin = Path(spec.origin) if spec and spec.origin else None
        if origin is not None and not origin.resolve().is_relative_to(folder.resolve()):
            raise SettingsError(
                f"{top} at the top of the code folder: Python would import the installed {origin} in its place",
                remedy="rename it, or put it into a package",
            )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
