"""Credentials of a sandbox."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from infra.lifecycle.sandbox import credentials


def test_every_sandbox_has_a_standard_p256_key_and_secrets_of_its_own() -> None:
    key = load_pem_private_key(credentials.account_key().encode(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    assert isinstance(key.curve, SECP256R1)
    assert credentials.account_key() != credentials.account_key()
    assert credentials.administrator_token() != credentials.administrator_token()


def test_the_kubeconfig_embeds_the_certificate(tmp_path: Path) -> None:
    certificate = tmp_path / "apiserver.crt"
    certificate.write_text("certificate")
    text = credentials.kubeconfig(server="https://127.0.0.1:1", certificate=certificate, token="t", name="sandbox")
    cluster = yaml.safe_load(text)["clusters"][0]["cluster"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"certificate"
