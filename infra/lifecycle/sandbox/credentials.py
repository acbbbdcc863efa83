"""What a control plane of loopback trusts: one token of an administrator and one key for service accounts."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import yaml

_ADMINISTRATORS = "system:masters"

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the group of the curve P-256 (SEC 2, 2.4.2)."""


def administrator_token() -> str:
    """A token nobody can guess."""
    return secrets.token_hex(32)


def token_file(token: str) -> str:
    """The API server's list of tokens: token, user, user id, groups."""
    return f"{token},administrator,administrator,{_ADMINISTRATORS}\n"


def account_key() -> str:
    """A new key of the curve P-256 as PEM.

    The structure ECPrivateKey of RFC 5915 without its optional public part, which readers compute: a number and the
    name of the curve, so that no library of certificates is needed.
    """
    number = secrets.randbelow(_P256_ORDER - 1) + 1
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    body = b"\x02\x01\x01" + b"\x04\x20" + number.to_bytes(32, "big") + curve
    text = base64.encodebytes(b"\x30" + bytes([len(body)]) + body).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"


def kubeconfig(*, server: str, certificate: Path, token: str, name: str) -> str:
    """A kubeconfig with one context; the certificate is copied into it."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)
