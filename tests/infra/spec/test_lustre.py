"""FSx for Lustre in the settings: what is refused, what it costs, and which nodes are far from it."""

from __future__ import annotations

from typing import Any

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.cost import estimate_cost
from infra.spec.errors import SettingsError
from infra.spec.settings import StackSettings, from_mapping
from infra.spec.settings.stores import LustreSettings
from tests.infra.spec.samples import Tree, changed, dev_sections, prod_sections

LUSTRE = {"source": "s3://corpus/imagenet", "availability_zone": "us-east-1a"}


def settings(changes: Tree | None = None, *, sections: Tree | None = None, **lustre: object) -> StackSettings:
    tree = {**(sections or dev_sections()), "storage": {"lustre": {**LUSTRE, **lustre}}}
    return from_mapping(changed(tree, changes or {}), file="sample")


def lustre_of(**fields: Any) -> LustreSettings:  # noqa: ANN401 - settings of any type
    """The settings of the file system, validated as part of an environment."""
    found = settings(**fields).storage.lustre
    assert found is not None
    return found


def test_what_fsx_does_not_offer_is_refused_and_its_sizes_are_accepted() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"size_gib": 3600}, "storage.lustre.size_gib = 3600: must be 1200 or a multiple of 2400"),
        ({"source": "corpus/imagenet"}, "storage.lustre.source = corpus/imagenet: must be s3://BUCKET/FOLDER"),
        ({"source": "s3://corpus//imagenet"}, "storage.lustre.source = s3://corpus//imagenet: must be s3://"),
        ({"source": "s3://corpus/../secret"}, "storage.lustre.source = s3://corpus/../secret: must be s3://"),
        (
            {"availability_zone": "us-east-1f"},
            "availability_zone = us-east-1f: must be a zone of the network: us-east-1a",
        ),
    ]
    for fields, said in cases:
        with pytest.raises(SettingsError) as refusal:
            settings(**fields)
        assert said in str(refusal.value), fields
    for size in (1200, 2400, 4800, 7200):
        assert lustre_of(size_gib=size).size_gib == size


def test_a_zone_without_gpu_nodes_is_refused() -> None:
    with pytest.raises(SettingsError) as refusal:
        settings({"gpu_groups.0.availability_zones": ["us-east-1b"]}, availability_zone="us-east-1c")
    assert "storage.lustre.availability_zone = us-east-1c: no GPU group has nodes in this zone" in str(refusal.value)
    assert "remedy: use one of us-east-1a, us-east-1b" in str(refusal.value)
    anywhere = settings({"gpu_groups": [], "teams": []}, availability_zone="us-east-1c")
    assert anywhere.storage.lustre is not None


def test_prod_refuses_scratch_and_dev_accepts_it() -> None:
    assert lustre_of(tier="scratch").throughput is None
    assert lustre_of().throughput == 125
    assert lustre_of(tier="persistent-1000").throughput == 1000
    with pytest.raises(SettingsError, match=r"storage.lustre.tier = scratch: prod needs a persistent tier"):
        settings(sections=prod_sections(), tier="scratch")


def test_the_subnet_has_an_address_for_every_file_server() -> None:
    small = {"network.cidr": "10.16.0.0/20", "network.pods_per_node": 16, "gpu_groups.0.max_size": 1, "teams": []}
    assert settings(small, size_gib=2400).storage.lustre is not None
    with pytest.raises(SettingsError, match=r"too small: subnet .* of us-east-1a has 1024 addresses"):
        settings(small, size_gib=1_200_000)


def test_it_costs_its_size_whether_used_or_not_and_a_tier_without_a_price_is_unresolved() -> None:
    of_scratch = estimate_cost(settings(size_gib=2400, tier="scratch"), catalog=load_catalog())
    (line,) = [item for item in of_scratch.items if item.name.startswith("FSx for Lustre")]
    assert (line.name, line.idle, line.full) == ("FSx for Lustre, scratch, GiB", 2400, 2400)
    assert line.usd_per_unit_hour == pytest.approx(0.14 / 730)
    catalog = load_catalog()
    tiers = LustreSettings.model_json_schema()["properties"]["tier"]["enum"]
    assert set(catalog.prices.lustre) == set(tiers)
    for tier in (tier for tier, price in catalog.prices.lustre.items() if price.usd is None):
        cost = estimate_cost(settings(tier=tier), catalog=catalog)
        assert f"FSx for Lustre, {tier}, GiB" in cost.unresolved
