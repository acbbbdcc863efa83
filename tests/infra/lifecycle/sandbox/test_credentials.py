"""Credentials of a sandbox."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from infra.lifecycle.sandbox import credentials


def test_every_sandbox_has_a_standard_p256_key_and_secrets_of_its_own() -> None:
    key = load_pem_private_key(credentials.account_key().encode(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    assert isinstance(key.curve, SECP256R1)
    assert credentials.account_key() != credentials.account_key()
    assert credentials.administrator_token() != credentials.administrator_token()
