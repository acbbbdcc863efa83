"""The token that the load balancer adds to each request of a person who has signed in.

A JSON Web Token (RFC 7515), signed with ES256 by a key of the load balancer. Its header says for whom and until when it is
valid; its payload has the claims from the identity provider's user info endpoint. Everybody with a load balancer gets such
tokens from AWS, so the signature alone proves nothing: the header must name our load balancer (Elastic Load Balancing, "User
claims encoding and signature verification").
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

TOKEN_FIELD = "X-Amzn-Oidc-Data"  # noqa: S105 - a name
"""Field of a request with the token; the load balancer removes what a client sends under this name."""

_KEY_ID = re.compile(r"[0-9a-f-]{36}")
_INTEGER_BYTES = 32
"""Length of each of the two integers of a signature with P-256 (RFC 7518, section 3.4)."""


class RefusedTokenError(Exception):
    """A token is missing, is not one, or is not for us; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Whose tokens are accepted.

    Attributes:
        signer: ARN of the load balancer up to its ID: `arn:aws:elasticloadbalancing:REGION:ACCOUNT:loadbalancer/app/NAME/`.
            Names are unique in an account and region, and the ID is known only after the load balancer has been made.
        issuer: the identity provider.
        client_id: our ID there.
        groups_claim: claim with a person's groups.
    """

    signer: str
    issuer: str
    client_id: str
    groups_claim: str


@dataclass(frozen=True)
class Person:
    """Somebody who has signed in.

    Attributes:
        name: email address, or the subject where the identity provider tells no address; for people to read.
        groups: their groups at the identity provider.
    """

    name: str
    groups: frozenset[str]


@dataclass(frozen=True)
class UnverifiedToken:
    """A token whose header is acceptable, and whose signature nobody has checked.

    Attributes:
        key_id: ID of the key that signed it.
        signed: what the signature is of.
        signature: the signature.
        payload: the claims, encoded.
    """

    key_id: str
    signed: bytes
    signature: bytes
    payload: str


def parsed(token: str, trust: Trust, *, now: float) -> UnverifiedToken:
    """A token whose header is for us.

    Args:
        token: the token.
        trust: whose tokens are accepted.
        now: seconds since the epoch.

    Raises:
        RefusedTokenError: it is not a token, or not for us.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise RefusedTokenError("it does not have three parts")
    head, payload, signature = parts
    header = _mapping(head, what="header")
    _check(header, trust, now=now)
    return UnverifiedToken(header["kid"], f"{head}.{payload}".encode(), _decoded(signature), payload)


def person_of(token: UnverifiedToken, key: EllipticCurvePublicKey, *, groups_claim: str) -> Person:
    """Whom a token is about, if `key` has signed it.

    Raises:
        RefusedTokenError: the key has not, or the claims name nobody.
    """
    if len(token.signature) != 2 * _INTEGER_BYTES:
        raise RefusedTokenError(f"its signature has {len(token.signature)} bytes, not {2 * _INTEGER_BYTES}")
    r, s = (int.from_bytes(part) for part in (token.signature[:_INTEGER_BYTES], token.signature[_INTEGER_BYTES:]))
    try:
        key.verify(encode_dss_signature(r, s), token.signed, ECDSA(SHA256()))
    except InvalidSignature as error:
        raise RefusedTokenError("its signature is wrong") from error
    claims = _mapping(token.payload, what="payload")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise RefusedTokenError("it has no subject")
    email = claims.get("email")
    return Person(email if isinstance(email, str) and email else subject, _groups(claims.get(groups_claim)))


def _check(header: Mapping[str, Any], trust: Trust, *, now: float) -> None:
    expected = {"alg": "ES256", "iss": trust.issuer, "client": trust.client_id}
    for name, value in expected.items():
        if header.get(name) != value:
            raise RefusedTokenError(f"its {name} is {header.get(name)!r}, not {value!r}")
    signer, expires, key_id = header.get("signer"), header.get("exp"), header.get("kid")
    if not isinstance(signer, str) or not re.fullmatch(f"{re.escape(trust.signer)}[0-9a-f]+", signer):
        raise RefusedTokenError(f"its signer is {signer!r}, not {trust.signer}…")
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):  # it becomes part of a URL
        raise RefusedTokenError(f"its kid is {key_id!r}, not the ID of a key")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or expires <= now:
        raise RefusedTokenError("it has expired")


def _groups(claim: object) -> frozenset[str]:
    """The groups in a claim, which some identity providers send as text where there is one; other values grant nothing."""
    if isinstance(claim, str):
        return frozenset({claim})
    return frozenset(one for one in claim if isinstance(one, str)) if isinstance(claim, list) else frozenset()


def _mapping(text: str, *, what: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(text))
    except ValueError as error:
        raise RefusedTokenError(f"its {what} is not JSON") from error
    if not isinstance(found, dict):
        raise RefusedTokenError(f"its {what} is not a JSON object")
    return found


def _decoded(text: str) -> bytes:
    """URL-safe base64; the load balancer pads it, unlike RFC 7515."""
    bare = text.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedTokenError("it is not encoded in base64") from error
