"""Single sign-on in the settings: what is refused before anything is made."""

from __future__ import annotations

import pytest

from infra.spec.errors import SettingsError
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.spec.samples import SINGLE_SIGN_ON, changed, dev_sections

_ARN = SINGLE_SIGN_ON["certificate_arn"]


def settings(**fields: object) -> StackSettings:
    """The sample environment with the section; `...` leaves a key out."""
    section = {name: value for name, value in {**SINGLE_SIGN_ON, **fields}.items() if value is not ...}
    return from_mapping(changed(dev_sections(), {"single_sign_on": section}), file="sample")


def test_wrong_settings_are_refused_by_name() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"issuer": "http://idp.example.com"}, "single_sign_on.issuer = http://idp.example.com: must be a URL that"),
        ({"token_endpoint": "idp/token"}, "single_sign_on.token_endpoint = idp/token: must be a URL that begins with"),
        ({"user_info_endpoint": ...}, "single_sign_on.user_info_endpoint: is required"),
        ({"domain": "https://ml.example.com"}, "must be a domain name in lower case, e.g. ml.example.com"),
        ({"domain": "example"}, "single_sign_on.domain = example: must be a domain name"),
        ({"certificate_arn": "arn:aws:iam::111122223333:server-certificate/x"}, "must be the ARN of an ACM"),
        ({"certificate_arn": _ARN.replace("us-east-1", "eu-west-1")}, "of its own region, and aws.region is us-east-1"),
        ({"certificate_arn": _ARN.replace("1111", "9999")}, "must be in an account of aws.allowed_accounts"),
        ({"groups": {"reserch": ["ml"]}}, "single_sign_on.groups.reserch = ml: no such team\n    remedy: did you mean"),
        ({"groups": {}}, "single_sign_on.groups"),
        ({"groups": {"research": []}}, "single_sign_on.groups.research"),
        ({"scopes": ["email"]}, "single_sign_on.scopes = email: must contain openid"),
        ({"client_cidrs": []}, "single_sign_on.client_cidrs"),
        ({"client_cidrs": ["0.0.0.0/0"], "internet_facing": True}, "opens the UIs to the internet"),
        ({"client_cidrs": ["198.51.100.0/24"]}, "cannot reach an internal load balancer: must lie in the VPC or"),
        ({"client_secret": "hunter2"}, "single_sign_on.client_secret: no such setting"),
    ]
    for fields, said in cases:
        with pytest.raises(SettingsError) as refusal:
            settings(**fields)
        assert said in str(refusal.value), fields


def test_offices_reach_an_internet_facing_load_balancer() -> None:
    found = settings(client_cidrs=["198.51.100.0/24"], internet_facing=True).single_sign_on
    assert found is not None
    assert [str(one) for one in found.client_cidrs] == ["198.51.100.0/24"]


def test_a_team_whose_host_name_would_not_do_is_refused() -> None:
    long = "a" * 57
    sections = changed(
        dev_sections(), {"teams.0.name": long, "single_sign_on": {**SINGLE_SIGN_ON, "groups": {long: ["ml"]}}}
    )
    with pytest.raises(SettingsError, match="has a label of more than 63 characters"):
        from_mapping(sections, file="sample")
