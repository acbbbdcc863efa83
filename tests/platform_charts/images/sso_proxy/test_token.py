"""Which tokens are believed."""

from __future__ import annotations

import json
import time

import pytest

from platform_charts.images.sso_proxy.sites import Site, refusal_of
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


HOST = "mlflow-research.ml.example.com"
ORIGIN = f"https://{HOST}"
FIELDS = {
    "host": HOST,
    "title": "MLflow of team research",
    "upstream": "http://mlflow:5000",
    "groups": ["ml-research", "ml-leads"],
    "team": "research",
}
SITE = Site.parse(json.dumps(FIELDS))
PASSWORD = "/ajax-api/2.0/mlflow/users/update-password"


def test_members_of_one_of_the_groups_are_admitted() -> None:
    for groups, admitted in (
        ({"ml-leads"}, True),
        ({"ml-research", "sales"}, True),
        ({"ml-platform"}, False),
        ({"ml"}, False),
        (set[str](), False),
    ):
        assert SITE.admits(Person("ada@example.com", frozenset(groups))) is admitted, groups


def test_a_site_without_groups_or_with_an_unusable_upstream_is_refused() -> None:
    changes: tuple[dict[str, object], ...] = (
        {"upstream": "https://mlflow"},
        {"upstream": "mlflow:5000"},
        {"groups": []},
        {"host": ...},
        {"other": 1},
    )
    for change in changes:
        given = {name: value for name, value in {**FIELDS, **change}.items() if value is not ...}
        with pytest.raises(ValueError, match="is not a site"):
            Site.parse(json.dumps(given))


def fetched(site: str, mode: str = "") -> dict[str, str]:
    """What a browser says of where a request comes from."""
    return {"Sec-Fetch-Site": site, **({"Sec-Fetch-Mode": mode} if mode else {})}


def test_requests_of_the_own_pages_and_links_to_them_pass() -> None:
    search = "/ajax-api/2.0/mlflow/runs/search"
    requests: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("GET", "/", {}),
        ("GET", "/", fetched("none", "navigate")),
        ("GET", "/", fetched("cross-site", "navigate")),
        ("GET", search, fetched("same-origin", "cors")),
        ("GET", "/ajax-api/2.0/mlflow/users/current", fetched("same-origin")),
        ("POST", search, {"Origin": ORIGIN, **fetched("same-origin")}),
        ("POST", search, {"Origin": ORIGIN}),
        ("DELETE", "/ajax-api/2.0/mlflow/runs/tags/users", {"Origin": ORIGIN}),
    )
    for method, path, fields in requests:
        assert refusal_of(SITE, method=method, path=path, fields=fields) == "", (method, path, fields)


def test_requests_of_other_pages_are_refused() -> None:
    others = ("https://evil.example", "null", f"http://{HOST}", "https://grafana.ml.example.com")
    requests: tuple[tuple[str, dict[str, str]], ...] = (
        ("POST", {}),
        *(("POST", {"Origin": origin}) for origin in others),
        ("POST", {"Origin": ORIGIN, **fetched("same-site")}),
        ("POST", {"Origin": ORIGIN, **fetched("cross-site", "navigate")}),
        ("OPTIONS", {"Origin": others[0]}),
        ("GET", {"Origin": others[0]}),
        ("GET", fetched("same-site", "no-cors")),
        ("GET", fetched("cross-site", "cors")),
        ("GET", fetched("cross-site")),
    )
    for method, fields in requests:
        refusal = refusal_of(SITE, method=method, path="/", fields=fields)
        assert "only pages of this host" in refusal, (method, fields)


def test_nobody_changes_the_account_of_a_team_and_a_target_that_is_not_a_path_is_refused() -> None:
    written = (PASSWORD, PASSWORD.replace("users", "%75sers"), PASSWORD.replace("/users", "//users"))
    for path in (*written, "/api/3.0/mlflow/roles/create"):
        assert "managed by the platform" in refusal_of(SITE, method="PATCH", path=path, fields={"Origin": ORIGIN}), path
    for path in ("http://169.254.169.254/latest", "*", ""):
        assert refusal_of(SITE, method="GET", path=path, fields={}) == "its target must be a path"
