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


@pytest.mark.parametrize(
    ("groups", "admitted"),
    [({"ml-leads"}, True), ({"ml-research", "sales"}, True), ({"ml-platform"}, False), ({"ml"}, False), (set(), False)],
)
def test_members_of_one_of_the_groups_are_admitted(groups: set[str], *, admitted: bool) -> None:
    assert SITE.admits(Person("ada@example.com", frozenset(groups))) is admitted


@pytest.mark.parametrize(
    "changes",
    [{"groups": []}, {"upstream": "https://mlflow"}, {"upstream": "mlflow:5000"}, {"host": ...}, {"other": 1}],
)
def test_a_site_without_groups_or_with_an_unusable_upstream_is_refused(changes: dict[str, object]) -> None:
    given = {name: value for name, value in {**FIELDS, **changes}.items() if value is not ...}
    with pytest.raises(ValueError, match="is not a site"):
        Site.parse(json.dumps(given))


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("GET", "/", {}),
        ("GET", "/", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ("GET", "/ajax-api/2.0/mlflow/runs/search", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}),
        ("GET", "/ajax-api/2.0/mlflow/users/current", {"Sec-Fetch-Site": "same-origin"}),
        ("POST", "/ajax-api/2.0/mlflow/runs/search", {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}),
        ("POST", "/ajax-api/2.0/mlflow/runs/search", {"Origin": ORIGIN}),
        ("DELETE", "/ajax-api/2.0/mlflow/runs/tags/users", {"Origin": ORIGIN}),
    ],
)
def test_requests_of_the_own_pages_and_links_to_them_pass(method: str, path: str, fields: dict[str, str]) -> None:
    assert refusal_of(SITE, method=method, path=path, fields=fields) == ""


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("POST", {}),
        ("POST", {"Origin": "https://evil.example"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Origin": f"http://{HOST}"}),
        ("POST", {"Origin": "https://grafana.ml.example.com"}),
        ("POST", {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"}),
        ("POST", {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ("OPTIONS", {"Origin": "https://evil.example"}),
        ("GET", {"Origin": "https://evil.example"}),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
    ],
)
def test_requests_of_other_pages_are_refused(method: str, fields: dict[str, str]) -> None:
    assert "only pages of this host" in refusal_of(SITE, method=method, path="/", fields=fields)


@pytest.mark.parametrize(
    "path",
    [
        PASSWORD,
        PASSWORD.replace("users", "%75sers"),
        PASSWORD.replace("/users", "//users"),
        "/api/3.0/mlflow/roles/create",
    ],
)
def test_nobody_changes_the_account_of_a_team(path: str) -> None:
    assert "managed by the platform" in refusal_of(SITE, method="PATCH", path=path, fields={"Origin": ORIGIN})


@pytest.mark.parametrize("path", ["http://169.254.169.254/latest", "*", ""])
def test_a_target_that_is_not_a_path_is_refused(path: str) -> None:
    assert refusal_of(SITE, method="GET", path=path, fields={}) == "its target must be a path"
