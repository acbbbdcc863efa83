"""Who may use a site, and which requests are refused whoever sends them."""

from __future__ import annotations

import json

import pytest

from platform_charts.images.sso_proxy.sites import Site, refusal_of
from platform_charts.images.sso_proxy.token import Person

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
        *({"upstream": upstream} for upstream in ("https://mlflow", "mlflow:5000")),
        *({"groups": []}, {"host": ...}, {"other": 1}),
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
