"""Which tokens are believed."""

from __future__ import annotations

import time

import pytest

from platform_charts.images.sso_proxy.token import Person, RefusedTokenError, parsed, person_of
from tests.platform_charts.images.sso_proxy.load_balancer import SIGNER, TRUST, LoadBalancer, encoded

BALANCER = LoadBalancer()


def person(token: str, *, verifier: LoadBalancer = BALANCER, now: float | None = None) -> Person:
    """Whom a token is about."""
    found = parsed(token, TRUST, now=time.time() if now is None else now)
    return person_of(found, verifier.public_key, groups_claim=TRUST.groups_claim)


def test_a_token_of_our_load_balancer_names_a_person_and_their_groups() -> None:
    claims: tuple[tuple[object, set[str]], ...] = (
        (["ml-research", "ml-leads"], {"ml-research", "ml-leads"}),
        ("ml-research", {"ml-research"}),
        ([], set()),
        (None, set()),
        ({"ml-research": True}, set()),
        (["ml-research", 7, None], {"ml-research"}),
    )
    for claim, groups in claims:
        assert person(BALANCER.token(claim)) == Person("ada@example.com", frozenset(groups)), claim
    assert person(BALANCER.token(claims={"sub": "4711"})) == Person("4711", frozenset()), "without an address"


def test_a_token_that_is_not_for_us_is_refused() -> None:
    balancer = "50dc6c495c0c9188"
    wrong: dict[str, tuple[object, ...]] = {
        "alg": ("none", "HS256"),
        "iss": ("https://other.example.com",),
        "client": ("another-application", None),
        "signer": (
            SIGNER.replace("111122223333", "999988887777") + balancer,
            SIGNER.replace("rtp-dev-sso", "rtp-dev-sso-2") + balancer,
            SIGNER,
            f"{SIGNER}50dc/../x",
            [f"{SIGNER}{balancer}"],
        ),
        "kid": ("../../secret", None),
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(RefusedTokenError, match=f"its {name} is "):
                person(BALANCER.token(**{name: value}))
    for expiry in (0, True, "4102444800"):
        with pytest.raises(RefusedTokenError, match="it has expired"):
            person(BALANCER.token(exp=expiry))


def test_a_token_is_refused_from_the_second_of_its_expiry_on() -> None:
    token = BALANCER.token(exp=1000)
    assert person(token, now=999.9).name == "ada@example.com"
    with pytest.raises(RefusedTokenError, match="it has expired"):
        person(token, now=1000)


def test_another_key_other_claims_and_what_is_no_signature_are_refused() -> None:
    with pytest.raises(RefusedTokenError, match="its signature is wrong"):
        person(BALANCER.token(), verifier=LoadBalancer())
    header, claims, signature = BALANCER.token(["ml-research"]).split(".")
    _, others, _ = LoadBalancer().token(["ml-platform"]).split(".")
    with pytest.raises(RefusedTokenError, match="its signature is wrong"):
        person(f"{header}.{others}.{signature}")
    for wrong in ("", encoded(b"\0" * 64), encoded(b"\1" * 63), encoded(b"\1" * 65)):
        with pytest.raises(RefusedTokenError, match="its signature"):
            person(f"{header}.{claims}.{wrong}")


def test_what_is_not_a_token_and_claims_without_a_subject_are_refused() -> None:
    for token in ("", "x", "a.b", "a.b.c.d", "!.!.!", f"{encoded(b'[]')}.a.b", f"{encoded(b'1')}.a.b"):
        with pytest.raises(RefusedTokenError):
            person(token)
    for claims in ({}, {"sub": ""}, {"sub": 7}, ["sub"]):
        with pytest.raises(RefusedTokenError, match=r"it has no subject|not a JSON object"):
            person(BALANCER.token(claims=claims))
