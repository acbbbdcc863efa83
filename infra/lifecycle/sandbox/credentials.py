"""Credentials of the control plane: an administrator's token and the signing key of service accounts."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from infra.spec.manifest_yaml import write_document

_ADMINISTRATORS = "system:masters"

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the base point of curve P-256 (SEC 2, 2.4.2)."""


def administrator_token() -> str:
    """A random token."""
    return secrets.token_hex(32)


def token_file(token: str, *, user: str = "administrator", group: str = _ADMINISTRATORS) -> str:
    """A line of the API server's token file: token, user, user id, groups."""
    return f"{token},{user},{user},{group}\n"


def account_key() -> str:
    """A new P-256 private key as PEM.

    An ECPrivateKey (RFC 5915) without the optional public key, which readers compute. It holds just a number and the
    curve's name, so no cryptography library is needed.
    """
    number = secrets.randbelow(_P256_ORDER - 1) + 1
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    body = b"\x02\x01\x01" + b"\x04\x20" + number.to_bytes(32, "big") + curve
    text = base64.encodebytes(b"\x30" + bytes([len(body)]) + body).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"


def kubeconfig(*, server: str, certificate: Path, token: str, name: str) -> str:
    """A kubeconfig with one context and the certificate embedded."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return write_document(document)
