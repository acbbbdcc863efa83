"""The certificate authority of the sandboxes' databases, one per machine and user, as MLflow's image contains its certificate."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from infra.lifecycle.sandbox.modules import cache_root
from infra.lifecycle.sandbox.node.machine import done

_NEW = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650")
_SETTINGS = "[req]\ndistinguished_name = name\n[name]\n"
"""In place of the machine's openssl.cnf, whose extensions would be added."""


def authority_folder(environment: Mapping[str, str]) -> Path:
    """Folder of the authority's certificate and key, made at the first use.

    Args:
        environment: see `modules.cache_root`, beside which it is.

    Raises:
        PlatformError: openssl made no certificate.
    """
    folder = cache_root(environment).parent / "database-authority"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="authority-", dir=folder.parent))
        _sign(
            made,
            "-subj",
            "/CN=ray-train-platform sandbox",
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", str(made / "ca.key"), "-out", str(made / "ca.crt")),
        )
        try:
            made.rename(folder)
        except OSError:  # another sandbox was faster
            shutil.rmtree(made)
    return folder


def authority_certificate(environment: Mapping[str, str]) -> bytes:
    """The authority's certificate in PEM; see `authority_folder`."""
    return (authority_folder(environment) / "ca.crt").read_bytes()


def server_certificate(authority: Path, *, address: str, certificate: Path, key: Path) -> None:
    """Write a server's certificate and key.

    Args:
        authority: see `authority_folder`.
        address: IP address by which clients know the server.
        certificate: file to write.
        key: file to write.

    Raises:
        PlatformError: openssl made no certificate.
    """
    _sign(
        certificate.parent,
        *("-CA", str(authority / "ca.crt"), "-CAkey", str(authority / "ca.key"), "-subj", f"/CN={address}"),
        *("-addext", f"subjectAltName=IP:{address}", "-addext", "extendedKeyUsage=serverAuth"),
        *("-keyout", str(key), "-out", str(certificate)),
    )


def _sign(folder: Path, *arguments: str) -> None:
    settings = folder / "openssl.cnf"
    settings.write_text(_SETTINGS, encoding="utf-8")
    done(*_NEW, "-config", settings, *arguments)
    settings.unlink()
