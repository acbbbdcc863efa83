"""The instance catalogue against EC2's own descriptions, and its refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.spec.catalog import CATALOG_FILE, Catalog, InstanceType, load_catalog, with_names
from infra.spec.errors import SettingsError
from infra.spec.section import read_document, validate

CATALOG = load_catalog()


def figures(instance: InstanceType) -> dict[str, object]:
    return {
        "architecture": instance.architecture,
        "vcpus": instance.vcpus,
        "memory_gib": instance.memory_gib,
        "network_cards": instance.network_cards,
        "efa_interfaces": instance.efa_interfaces,
        "network_gbits": instance.network_gbits,
        "gpu": (instance.gpu.model, instance.gpu.count, instance.gpu.memory_mib) if instance.gpu else None,
        "nvme": (instance.nvme.disks, instance.nvme.disk_gb) if instance.nvme else None,
    }


def figures_of_ec2(one: dict[str, Any]) -> dict[str, object]:
    gpus = one.get("GpuInfo", {}).get("Gpus", [])
    disks = one.get("InstanceStorageInfo", {}).get("Disks", [])
    return {
        "architecture": one["ProcessorInfo"]["SupportedArchitectures"][0],
        "vcpus": one["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": one["MemoryInfo"]["SizeInMiB"] // 1024,
        "network_cards": one["NetworkInfo"]["MaximumNetworkCards"],
        "efa_interfaces": one["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "network_gbits": gigabits_that_last(one["NetworkInfo"]) if gpus else None,
        "gpu": (gpus[0]["Name"], gpus[0]["Count"], gpus[0]["MemoryInfo"]["SizeInMiB"]) if gpus else None,
        "nvme": (disks[0]["Count"], disks[0]["SizeInGB"]) if disks else None,
    }


def gigabits_that_last(network: dict[str, Any]) -> float:
    """Gbit/s of EC2's `NetworkPerformance`, e.g. `4x 100 Gigabit`; of a type with bursts, `Up to 25 Gigabit`, the baseline."""
    said = re.fullmatch(r"(?:(\d+)x )?(\d+) Gigabit", network["NetworkPerformance"])
    if said is None:
        return sum(float(card["BaselineBandwidthInGbps"]) for card in network["NetworkCards"])
    return float(said[1] or 1) * float(said[2])


def test_every_figure_of_a_type_is_ec2s() -> None:
    """Moto serves a recording of the real DescribeInstanceTypes."""
    with mock_aws():
        client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        pages = client.get_paginator("describe_instance_types").paginate(InstanceTypes=sorted(CATALOG.instances))
        described = {one["InstanceType"]: one for page in pages for one in page["InstanceTypes"]}
    for name, one in CATALOG.instances.items():
        assert figures(CATALOG.find_instance(name)) == figures_of_ec2(described[name]), name
        is_sold = "capacity-block" in described[name]["SupportedUsageClasses"]
        assert CATALOG.family_of(name).capacity_blocks == is_sold, name
        assert one.efa_interfaces in {0, one.network_cards - (0 if one.efa_on_first_card else 1)}, name


def test_a_region_offers_exactly_the_catalogued_families() -> None:
    for region in ("us-east-1", "eu-west-1", "ap-southeast-1"):
        with mock_aws():
            client = boto3.client("ec2", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
            pages = client.get_paginator("describe_instance_type_offerings").paginate(LocationType="region")
            offered = {one["InstanceType"] for page in pages for one in page["InstanceTypeOfferings"]}
        ours = {name for name in CATALOG.instances if region in CATALOG.family_of(name).regions}
        assert ours == offered & set(CATALOG.instances), region


def test_only_a_type_that_is_not_sold_where_the_prices_hold_has_no_price() -> None:
    unpriced = {one.name for one in CATALOG.instances.values() if one.usd_per_hour is None}
    sold = {name for name in CATALOG.instances if CATALOG.prices.region in CATALOG.family_of(name).regions}
    assert unpriced == set(CATALOG.instances) - sold == {"p5e.48xlarge"}


def test_an_unknown_type_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingsError, match=r"'p5\.48large' is not in the catalogue \(did you mean p5\.48xlarge\?\)"):
        CATALOG.find_instance("p5.48large")


def test_dcgm_memory_is_that_of_the_next_larger_entry() -> None:
    for gpus, mib in ((1, 512), (2, 768), (4, 768), (8, 1024)):
        assert CATALOG.dcgm_memory_mib(gpus) == mib, gpus


def test_a_price_without_a_source_and_a_catalogue_that_lacks_a_family_or_is_none_are_refused(tmp_path: Path) -> None:
    document = read_document(CATALOG_FILE).value
    document["instances"] = {}
    document["prices"]["services"]["nat_gateway_hour"] = {"usd": 0.045}
    with pytest.raises(SettingsError, match=r"prices\.services\.nat_gateway_hour: a price needs as_of and source"):
        validate(Catalog, document, file="catalog.yaml")
    text = CATALOG_FILE.read_text(encoding="utf-8").replace("  p5.48xlarge:", "  p9.48xlarge:")
    path = tmp_path / "catalog.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match="families lacks p9"):
        load_catalog(path)
    with pytest.raises(SettingsError, match=r"none\.yaml: no such file"):
        load_catalog(tmp_path / "none.yaml")
    path.write_text("instances: [p5.48xlarge]", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"instances = \[p5.48xlarge\]: must be a mapping"):
        load_catalog(path)


def test_a_compute_capability_is_that_of_the_gpus_and_a_gpu_without_one_is_refused() -> None:
    assert CATALOG.compute_capability("g5.xlarge") == (8, 6)
    assert CATALOG.compute_capability("p6-b300.48xlarge") == (10, 3)
    assert CATALOG.compute_capability("m6i.xlarge") is None
    assert CATALOG.families_from((10, 0)) == ("g7", "g7e", "p6-b200", "p6-b300")
    assert CATALOG.families_from((99, 0)) == ()
    tree = with_names(read_document(CATALOG_FILE).value)
    del tree["compute_capabilities"]["A10G"]
    with pytest.raises(SettingsError, match="compute_capabilities lacks A10G"):
        validate(Catalog, tree, file="catalog.yaml")
