"""Settings: shipped files load, invalid ones are refused by file, key, value and rule."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import jsonschema  # its stubs are not among the dev dependencies
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.settings import (
    StackSettings,
    check_account,
    environment_names,
    from_mapping,
    load_environment,
    render_test_environment,
)
from infra.spec.settings.loading import ENVIRONMENTS
from infra.spec.settings.network import NetworkSettings, addresses_per_node, subnets_of
from infra.spec.settings.schema import SCHEMA_FILE, environment_schema, render
from tests.infra.spec.samples import SHIPPED, changed, dev_sections, prod_sections

BLOCK = {"kind": "capacity_block", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
BLOCK_UNTIL = {**BLOCK, "ends": "2030-01-01T00:00:00Z"}
IN_BLOCK = {"gpu_groups.1.capacity": BLOCK_UNTIL, "gpu_groups.1.placement": "none", "gpu_groups.1.desired_size": 2}
FIXED = {"min_size": 4, "desired_size": 4, "max_size": 4}
RESERVED = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}


def message_of(sections: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        from_mapping(sections, file="sample.yaml")
    message = str(caught.value)
    assert message.startswith("sample.yaml: ")
    return message


def test_a_shipped_environment_loads_is_listed_and_has_its_files_name() -> None:
    for name in SHIPPED:
        assert name in environment_names()
        assert load_environment(name).environment.name == name
        document = yaml.safe_load((ENVIRONMENTS / f"{name}.yaml").read_text(encoding="utf-8"))
        jsonschema.validate(document, environment_schema())


WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"network.cird": 1}, "network.cird: no such setting\n    remedy: did you mean cidr?"),
    ({"gpu_groups.0.capacity.id": "x"}, "gpu_groups.0.capacity.id: no such setting"),
    ({"environment.owner": ...}, "environment.owner: is required: Email address of the owner"),
    ({"environment.owner": "me"}, "environment.owner = me: must be an email address"),
    ({"gpu_groups.0.capacity.kind": "spots"}, "gpu_groups.0.capacity.kind = spots: must be one of on_demand, spot"),
    ({"gpu_groups.1.capacity": BLOCK}, "gpu_groups.1.capacity.ends: is required: End time of the block"),
    ({"cluster.kubernetes": 1.35}, "cluster.kubernetes = 1.35: must be text\n    remedy: write it in quotes"),
    ({"budget": {"monthly_usd": math.inf, "email": "a@b.cc"}}, "budget.monthly_usd = .inf: must be a finite number"),
    ({"network": 3}, "network = 3: must be a mapping with keys among: availability_zones, cidr"),
    ({"network.flow_log_days": 31}, "network.flow_log_days = 31: must be one of 1, 3, 5, 7, 14, 30, 60"),
    ({"network.cidr": "10.0.0.1/16"}, "network.cidr = 10.0.0.1/16: is not a valid IPv4 network"),
    ({"gpu_groups.0.min_size": 5}, "gpu_groups.0: min_size=5, desired_size=0, max_size=4"),
    (
        {"database": {"max_allocated_gib": 20, "allocated_gib": 30}},
        "max_allocated_gib=20 must be above allocated_gib=30",
    ),
    (
        {"database": {"max_allocated_gib": 30, "allocated_gib": 30}},
        "max_allocated_gib=30 must be above allocated_gib=30",
    ),
    ({"environment.name": "dev--eu"}, "environment.name = dev--eu: must be 3 to 20"),
    ({"environment.name": "a" * 21}, f"environment.name = {'a' * 21}: must be 3 to 20"),
    (
        {"gpu_groups.0.sharing": {"time_slices": 2, "mig_profile": "1g.10gb"}},
        "time_slices=2 and mig_profile=1g.10gb are",
    ),
]


def test_an_invalid_value_is_refused_by_key_value_and_rule_and_all_errors_at_once() -> None:
    for changes, expected in WRONG_VALUES:
        assert expected in message_of(changed(dev_sections(), changes)), changes
    message = message_of(changed(dev_sections(), {"network.nat": "two", "environment.kind": "qa"}))
    assert message.startswith("sample.yaml: 2 wrong settings")


BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    ({"aws.region": "us-east-9"}, "aws.region = us-east-9: unknown region"),
    ({"aws.region": "us-gov-west-1"}, "aws.region = us-gov-west-1: of the partition aws-us-gov"),
    ({"aws.region": "cn-north-1"}, "aws.region = cn-north-1: of the partition aws-cn"),
    ({"network.availability_zones": ["us-east-1a", "us-west-2b"]}, "us-west-2b: not a zone of aws.region = us-east-1"),
    ({"network.availability_zones": ["us-east-1a", "us-east-1a"]}, "must list each zone once"),
    ({"network.cidr": "10.0.0.0/8"}, "network.cidr = 10.0.0.0/8: must be /16 to /22"),
    ({"network.service_cidr": "172.20.0.0/28"}, "network.service_cidr = 172.20.0.0/28: must be /12 to /24"),
    ({"network.service_cidr": "100.64.0.0/16"}, "must lie in 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16"),
    ({"network.service_cidr": "10.16.128.0/20"}, "overlaps network.cidr = 10.16.0.0/16"),
    (
        {"cluster.client_cidrs": ["10.99.0.0/24"]},
        "client_cidrs.0 = 10.99.0.0/24: must lie in network.peered_cidrs, which",
    ),
    ({"network.peered_cidrs": ["10.16.4.0/24"]}, "network.peered_cidrs.0 = 10.16.4.0/24: overlaps network.cidr"),
    ({"network.cidr": "10.16.0.0/22"}, "too small: subnet 10.16.0.0/24 of us-east-1a has 256 addresses"),
    ({"cluster.kubernetes": "1.27"}, "cluster.kubernetes = 1.27: this release supports 1.35"),
    ({"cluster.public_cidrs": ["0.0.0.0/0"]}, "opens the API server to the internet"),
    ({"gpu_groups.1.name": "t4"}, "gpu_groups.0.name = t4: must be unique"),
    ({"gpu_groups.1.name": "heads"}, "gpu_groups.1.name = heads: must be unique, and none of default, heads, system"),
    ({"system_nodes": {"min_size": 2, "desired_size": 3}}, "system_nodes.min_size = 2: each of the 3 zones of the"),
    ({"head_nodes": {"instance_type": "g5.xlarge"}}, "head_nodes.instance_type = g5.xlarge: not an instance type"),
    ({"gpu_groups.0.instance_type": "g4dn.xxlarge"}, "remedy: did you mean g4dn.xlarge?"),
    ({"system_nodes": {"instance_type": "g5.xlarge"}}, "instance_type = g5.xlarge: not an instance type without"),
    (
        {"database": {"instance_class": "db.m7g.medum"}},
        "not a class of RDS for PostgreSQL in the catalogue\n    remedy: did",
    ),
    ({"database": {"instance_class": "db.zz.top"}}, "remedy: families: m5, m5d"),
    ({"database": {"engine_version": "13"}}, "database.engine_version = 13: not a major version of PostgreSQL that"),
    ({"gpu_groups.1.availability_zones": ["us-east-1f"]}, "us-east-1f: must be a zone of the network: us-east-1a"),
    ({"gpu_groups.1.capacity": {"kind": "spot"}}, "gpu_groups.1.efa = true: spot capacity excludes EFA"),
    (
        {"gpu_groups.0.capacity": RESERVED, "gpu_groups.1.capacity": RESERVED, "gpu_groups.1.placement": "none"},
        "gpu_groups.1.capacity.id = cr-0123456789abcdef0: group t4 already uses this capacity",
    ),
    ({**IN_BLOCK, "gpu_groups.1.min_size": 1}, "gpu_groups.1.min_size = 1: a Capacity Block starts without nodes"),
    (IN_BLOCK, "gpu_groups.1.desired_size = 2: a Capacity Block starts without nodes"),
    ({"gpu_groups.0.sharing": {"mig_profile": "1g.10gb"}}, "mig_profile = 1g.10gb: T4 does not support MIG"),
    ({"gpu_groups.1.sharing": {"time_slices": 2}}, "gpu_groups.1.sharing: GPU sharing is for development"),
    ({"capacity_order": ["h10"]}, "capacity_order.0 = h10: no such GPU group\n    remedy: did you mean h100?"),
    ({"capacity_order": ["t4", "t4"]}, "capacity_order.1 = t4: is listed twice"),
    ({"gpu_groups.1.topology": "network"}, "gpu_groups.1.topology = network: needs a group of fixed size"),
    ({"gpu_groups.0.topology": "network"}, "EC2 reports no network layers for g4dn.xlarge"),
    (
        {"gpu_groups.0": {"name": "t4", "instance_type": "g6e.xlarge", "topology": "network", **FIXED}},
        "gpu_groups.0.topology = network: needs one zone, as the workers of a job do; the group has us-east-1a, us",
    ),
    ({"teams.0.gpus": {"h10": 1}}, "teams.0.gpus.h10 = 1: no such GPU group\n    remedy: did you mean h100?"),
    ({"gpu_groups.1.sharing": {"mig_profile": "3g.40gb"}, "teams.0.gpus.h100": 33}, "add up to 33 GPUs, h100 has 32"),
    ({"teams.0.gpus.h100": 17}, "teams.0.gpus.h100 = 17: the teams' quotas add up to 17 GPUs, h100 has 16"),
    ({"teams.0.name": "kube-system"}, "teams.0.name = kube-system: must be unique"),
    ({"environment.expires": "2030-01-01T00:00:00Z"}, "only kind test expires"),
    ({"environment.kind": "test"}, "environment.expires: is required for kind test"),
    ({"environment.kind": "test"}, "budget: is required for kind test"),
]


def test_a_broken_rule_across_settings_is_refused_by_key_value_and_rule() -> None:
    for changes, expected in BROKEN_RULES:
        assert expected in message_of(changed(dev_sections(), changes)), changes


def test_a_type_not_offered_in_the_region_is_refused_with_the_regions_that_offer_it() -> None:
    zones = {"aws.region": "us-west-1", "network.availability_zones": ["us-west-1a", "us-west-1b"]}
    sections = changed(dev_sections(), {**zones, "gpu_groups.0.instance_type": "g5.xlarge"})
    assert "gpu_groups.0.instance_type = g5.xlarge: not offered in us-west-1" in message_of(sections)


def test_prod_refuses_what_dev_allows() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cluster.public_cidrs": ["198.51.100.0/24"]}, "cluster.public_cidrs = 198.51.100.0/24: prod must not have a"),
        ({"network.nat": "single"}, "network.nat = single: prod needs one NAT gateway per zone"),
        ({"network.availability_zones": ["us-east-1a", "us-east-1b"]}, "prod needs three zones"),
        ({"database.multi_az": False}, "database.multi_az = false: prod's database needs a standby"),
        ({"monitoring": {}}, "monitoring: prod needs an alert recipient"),
        ({"budget": ...}, "budget: is required in prod"),
    ]
    for changes, expected in cases:
        assert expected in message_of(changed(prod_sections(), changes)), changes


def test_an_unknown_environment_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingsError, match=r"unknown environment 'stagin' \(did you mean staging\?\)"):
        load_environment("stagin")
    for name, remedy in (
        ("stagin", "create "),
        ("../environments/dev", "name it without folder and ending, as ENV=dev"),
        ("prod.yaml", "name it without folder and ending, as ENV=prod"),
        ("", "name it without folder and ending, as ENV=dev"),
    ):
        with pytest.raises(SettingsError) as caught:
            load_environment(name)
        assert caught.value.remedy.startswith(remedy), name


def test_a_malformed_file_or_one_with_another_environments_name_is_refused(tmp_path: Path) -> None:
    for text, expected in (
        ("aws:region: us-east-1", "aws:region: no such setting"),
        ("environment: [a]", "environment = [a]: must be a mapping"),
        ("- a", "the top level must be a mapping, got list"),
        ("environment: [", "1:15: not valid YAML"),
    ):
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError) as caught:
            load_environment("mine", directory=tmp_path)
        assert "mine.yaml:" in str(caught.value), text
        assert expected in str(caught.value), text
    (tmp_path / "mine.yaml").write_text((ENVIRONMENTS / "dev.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"mine.yaml: environment.name = dev: must equal the file's name, mine"):
        load_environment("mine", directory=tmp_path)


def test_a_disallowed_account_is_refused() -> None:
    settings = from_mapping(dev_sections(), file="sample")
    check_account(settings, "111122223333")
    with pytest.raises(RefusedError, match="AWS account 999999999999 may not hold environment dev"):
        check_account(settings, "999999999999")


def of_template(**changes: Any) -> str:  # noqa: ANN401 - values of any type
    values: dict[str, Any] = {
        "name": "test-4711",
        "owner": "ops@example.com",
        "account": "111122223333",
        "purpose": "cluster-test",
        "expires": datetime(2030, 1, 31, 18, tzinfo=UTC),
        "budget_usd": 50,
    }
    return render_test_environment(**{**values, **changes})


def test_the_template_of_test_clusters_is_a_valid_environment_and_no_value_injects_settings() -> None:
    settings = from_mapping(yaml.safe_load(of_template()), file="test")
    assert settings.environment.expires == datetime(2030, 1, 31, 18, tzinfo=UTC)
    assert "$schema=schema.json" in of_template()
    with pytest.raises(ValueError, match="needs a time zone"):
        of_template(expires=datetime.fromisoformat("2030-01-01"))
    with pytest.raises(ValueError, match="letters, digits"):
        of_template(name="test\n    kind: prod")


def test_the_committed_schema_is_the_generated_one_which_describes_and_knows_every_setting() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == render()
    with pytest.raises(jsonschema.ValidationError, match="cird"):
        jsonschema.validate(changed(dev_sections(), {"network.cird": 1}), environment_schema())
    for model in StackSettings.model_json_schema()["$defs"].values():
        bare = [name for name, field in model.get("properties", {}).items() if not field.get("description")]
        assert bare == [], model["title"]


networks = st.builds(
    lambda block, prefix, zones: NetworkSettings(
        cidr=IPv4Network((block << 16, prefix)), availability_zones=tuple(f"us-east-1{zone}" for zone in "abc"[:zones])
    ),
    st.integers(0x0A00, 0x0AFF),
    st.integers(16, 22),
    st.integers(2, 3),
)


@given(network=networks)
def test_subnets_lie_in_the_vpc_without_overlap(network: NetworkSettings) -> None:
    subnets = subnets_of(network)
    every = [*subnets.private, *subnets.public]
    assert len(every) == 2 * len(network.availability_zones)
    (cidr,) = network.vpc_cidrs.values()
    assert all(subnet.subnet_of(cidr) for subnet in every)
    assert not any(a.overlaps(b) for i, a in enumerate(every) for b in every[:i])


@given(network=networks)
def test_a_third_zone_does_not_change_the_first_two_subnets(network: NetworkSettings) -> None:
    two = network.model_copy(update={"availability_zones": ("us-east-1a", "us-east-1b")})
    three = network.model_copy(update={"availability_zones": ("us-east-1a", "us-east-1b", "us-east-1c")})
    assert subnets_of(three).private[:2] == subnets_of(two).private
    assert subnets_of(three).public[:2] == subnets_of(two).public


@given(pods=st.integers(16, 110))
def test_a_node_has_addresses_for_all_its_pods_and_a_spare_prefix(pods: int) -> None:
    assert pods + 16 < addresses_per_node(pods) <= pods + 2 * 16


@given(nodes=st.integers(1, 400), prefix=st.integers(16, 22), pods=st.integers(16, 110))
def test_a_group_is_accepted_only_if_its_subnet_has_enough_addresses(nodes: int, prefix: int, pods: int) -> None:
    sections = changed(
        dev_sections(),
        {
            "network.cidr": f"10.16.0.0/{prefix}",
            "network.pods_per_node": pods,
            "gpu_groups.0.max_size": nodes,
            "gpu_groups.0.availability_zones": ["us-east-1b"],
            "teams": [],
        },
    )
    # Two of six system nodes, and two of four head nodes.
    others = 4 * addresses_per_node(pods)
    fits = {
        "us-east-1a": others + 2 * addresses_per_node(pods) + 37,
        "us-east-1b": others + nodes * addresses_per_node(pods) + 37,
    }
    if max(fits.values()) <= 2 ** (30 - prefix):
        from_mapping(sections, file="sample")
    else:
        assert "too small" in message_of(sections)


def test_the_subnet_of_every_zone_has_room_for_all_nodes_of_a_gpu_group_of_several_zones() -> None:
    """A job that takes the whole group runs in one zone."""
    sections = changed(dev_sections(), {"network.cidr": "10.16.0.0/20", "gpu_groups.0.max_size": 10})
    message = message_of(sections)
    assert "subnet 10.16.4.0/22 of us-east-1b has 1024 addresses" in message
    assert f"need {37 + (2 + 2 + 10) * 81}" in message


def test_an_impossible_log_destination_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"destination": "loki"}, "logs.loki_url: is required for logs.destination = loki"),
        ({"loki_url": "http://loki:3100"}, "logs.loki_url = http://loki:3100: logs.destination = cloudwatch sends"),
        ({"destination": "none", "loki_url": "http://loki"}, "logs.destination = none sends nothing to Loki"),
        ({"destination": "loki", "loki_url": "http://loki/path"}, "logs.loki_url"),
    ]
    for logs, said in cases:
        assert said in message_of(changed(dev_sections(), {"logs": logs})), logs


def test_a_backup_is_not_kept_longer_than_its_artifacts() -> None:
    storage = {"storage": {"noncurrent_days": 20}}
    said = message_of(changed(dev_sections(), {**storage, "mlflow": {"backup_keep_days": 21}}))
    assert "mlflow.backup_keep_days = 21: must be at most storage.noncurrent_days = 20" in said
    for kept in ({"backup_keep_days": 20}, dict[str, int]()):
        assert from_mapping(changed(dev_sections(), {**storage, "mlflow": kept}), file="sample.yaml").backup_days == 20


def test_a_bucket_of_a_team_is_a_bucket_or_a_folder_without_wildcards() -> None:
    for folder in ("s3://corpus", "corpus/", "corpus/*", "Corpus", "corpus//a", "corpus/$x"):
        with pytest.raises(SettingsError, match=r"teams\.0\.dataset_buckets\.0"):
            from_mapping(changed(dev_sections(), {"teams.0.dataset_buckets": [folder]}), file="sample")
