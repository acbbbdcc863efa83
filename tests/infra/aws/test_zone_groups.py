"""What an update replaces when the zones of a node group change."""

from __future__ import annotations

from infra.policy import tokens
from infra.preview.recording import Recording
from tests.infra.aws.graphs import depends_on, varied
from tests.infra.preview.snapshot import losses, snapshot_of

ONE_ZONE = varied({"gpu_groups.0.availability_zones": ["us-east-1b"]})
ALL_ZONES = varied({})


def names(recording: Recording) -> set[tuple[str, str]]:
    return {(one.type, one.name) for one in recording.resources}


def test_a_group_that_spreads_over_zones_replaces_only_its_managed_group_and_the_tags_of_that() -> None:
    gone, new = names(ONE_ZONE) - names(ALL_ZONES), names(ALL_ZONES) - names(ONE_ZONE)
    assert {type_ for type_, _ in gone} == {type_ for type_, _ in new} == {tokens.NODE_GROUP, tokens.ASG_TAG}
    assert {name for type_, name in gone if type_ == tokens.NODE_GROUP} == {"t4"}
    assert {name for type_, name in new if type_ == tokens.NODE_GROUP} == {f"t4-us-east-1{zone}" for zone in "abc"}
    assert list(losses(snapshot_of(ONE_ZONE), snapshot_of(ALL_ZONES))) == []


def test_the_new_managed_groups_exist_before_the_old_one_is_deleted_and_share_its_template() -> None:
    """Pulumi creates before it deletes what is gone; only a resource that replaces itself may be deleted first."""
    new = [one for one in ALL_ZONES.of_type(tokens.NODE_GROUP) if one.name.startswith("t4-")]
    assert not any(one.delete_before_replace for one in new)
    template = ALL_ZONES.find(tokens.LAUNCH_TEMPLATE, "t4")
    assert template.urn == ONE_ZONE.find(tokens.LAUNCH_TEMPLATE, "t4").urn
    assert template.properties == ONE_ZONE.find(tokens.LAUNCH_TEMPLATE, "t4").properties
    for one in ALL_ZONES.of_type(tokens.NODE_GROUP):
        if one.name.startswith("t4-"):
            assert depends_on(ALL_ZONES, one, template)
