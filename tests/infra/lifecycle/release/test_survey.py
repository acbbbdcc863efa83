"""Confirming the shipped release at its sources, and offering newer versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from infra.lifecycle.cli import main
from infra.lifecycle.commands import refresh
from infra.lifecycle.release.lock import resolve
from infra.lifecycle.release.newer_versions import Offer, changes_of, offers
from infra.lifecycle.release.numbering import newer_like, newer_releases, newest_release
from infra.lifecycle.release.survey import Report, Status, entries, survey, with_resolution
from infra.lifecycle.release.web_sources import RemoteFile
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from infra.spec.release_rules import findings, read_project
from tests.infra.lifecycle.release.mirror import Aws, Web, add_charts, add_image, add_release, sources
from tests.infra.lifecycle.release.servers import Site, served
from tests.infra.spec.test_release import release_with

RELEASE = load_release()
PROJECT = read_project()
KNOWN_AWS = Aws(known={name: addon.version for name, addon in RELEASE.addons.items() if addon.version})
LATEST = str(RELEASE.downloads["efa-installer"].latest)
INSTALLER = RELEASE.downloads["efa-installer"].address()
FILE = RemoteFile("1", '"a"')
KNOWN_WEB = Web(
    packages={name: (getattr(RELEASE.stack, name),) for name in ("ray", "torch", "mlflow")},
    files={LATEST: FILE, INSTALLER: FILE, RELEASE.downloads["rds-certificates"].address(): FILE},
)


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that has the shipped release and nothing newer."""
    with served() as one:
        add_release(one)
        yield one


def surveyed(
    site: Site, release: ReleaseManifest = RELEASE, aws: Aws = KNOWN_AWS, web: Web = KNOWN_WEB
) -> dict[str, Report]:
    return {report.name: report for report in survey(release, sources(site, aws, web), done=lambda _: None)}


def offered(site: Site, aws: Aws = KNOWN_AWS, web: Web = KNOWN_WEB) -> dict[str, Offer]:
    reports = survey(RELEASE, sources(site, aws, web), done=lambda _: None)
    return {offer.report.name: offer for offer in offers(RELEASE, reports, project=PROJECT)}


def test_every_entry_is_confirmed_unresolved_or_says_why_it_has_no_source(site: Site) -> None:
    reports = surveyed(site)
    groups = ("addons", "charts", "images", "downloads", "crds")
    names = {f"{group}.{name}" for group in groups for name in getattr(RELEASE, group)}
    names |= {f"node_image.releases.{ami}" for ami in RELEASE.node_image.releases} | {"node_image.nvidia_driver"}
    names |= {f"stack.{name}" for name in ("python", "ray", "torch", "cuda", "mlflow")}
    assert set(reports) == names | {"platform", "kubernetes", "compatibility"}
    assert entries(RELEASE, sources(site)) == len(reports)
    by_status = {status: {name for name, one in reports.items() if one.status is status} for status in Status}
    assert by_status[Status.NO_SOURCE] == {
        *("platform", "compatibility", "crds.kuberay", "node_image.nvidia_driver", "stack.python", "stack.cuda"),
        *("images.trainer", "images.session", "images.mlflow"),
    }
    amis = RELEASE.node_image.releases
    unresolved = {f"addons.{name}" for name, addon in RELEASE.addons.items() if addon.version is None}
    unresolved |= {f"node_image.releases.{ami}" for ami, version in amis.items() if version is None}
    assert by_status[Status.UNRESOLVED] == unresolved
    assert len(by_status[Status.CONFIRMED]) == len(reports) - len(unresolved) - len(by_status[Status.NO_SOURCE])
    assert all(one.newer is None and one.note == "" for one in reports.values())


def test_a_chart_and_a_tag_that_do_not_exist_are_not_found(site: Site) -> None:
    release = release_with({"charts.dcgm-exporter.version": "4.9.9", "images.grafana.tag": "13.9.9"})
    reports = surveyed(site, release)
    assert (reports["charts.dcgm-exporter"].status, reports["images.grafana"].status) == (Status.NOT_FOUND,) * 2
    assert "no digest of chart dcgm-exporter 4.9.9" in reports["charts.dcgm-exporter"].detail
    assert "manifests/13.9.9: HTTP status 404" in reports["images.grafana"].detail


def test_a_chart_or_tag_with_other_content_than_pinned_is_changed(site: Site) -> None:
    release = release_with({"charts.kueue.sha256": "c" * 64, "images.kueue.digest": f"sha256:{'c' * 64}"})
    reports = surveyed(site, release)
    assert (reports["charts.kueue"].status, reports["images.kueue"].status) == (Status.CHANGED,) * 2
    assert f"has {'a' * 64}, pinned is {'c' * 64}" in reports["charts.kueue"].detail


def test_a_source_that_denies_access_gave_no_answer(site: Site) -> None:
    site.statuses["/v2/grafana/grafana/manifests/13.2.0"] = 403
    site.statuses["/v2/grafana/grafana/tags/list?n=1000"] = 403
    report = surveyed(site)["images.grafana"]
    assert report.status is Status.NO_ANSWER
    assert "tags/list?n=1000: HTTP status 403" in report.note


def test_a_resolved_value_is_reported_with_its_source(site: Site) -> None:
    reports = tuple(surveyed(site).values())
    resolution = resolve(RELEASE, sources(site))
    found = {report.name: report for report in with_resolution(reports, resolution)}
    assert (found["charts.kueue"].status, found["charts.kueue"].current) == (Status.RESOLVED, "0.19.2")
    assert (found["addons.coredns"].status, found["addons.coredns"].current) == (Status.RESOLVED, "v1.35.0-eksbuild.1")
    installer = found["downloads.efa-installer"]
    assert installer.status is Status.UNRESOLVED
    assert installer.detail.startswith("by hand")
    # A pinned download that is gone is not hidden by its unresolved hash.
    reports = tuple(surveyed(site, web=replace(KNOWN_WEB, files={})).values())
    gone = {report.name: report for report in with_resolution(reports, resolution)}["downloads.efa-installer"]
    assert gone.status is Status.NOT_FOUND


def test_the_command_says_what_takes_time_and_each_unresolved_reason_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand = [one for one in resolve(RELEASE, sources(site)).open if "by hand" in one.reason]
    assert by_hand
    before = RELEASE_FILE.read_text(encoding="utf-8")
    for web in (KNOWN_WEB, replace(KNOWN_WEB, files={})):  # in the table, and below it
        monkeypatch.setattr(refresh, "_sources", lambda _, web=web: sources(site, KNOWN_AWS, web))
        assert main(["release-lock", "--dry-run"]) == refresh.INCOMPLETE
        said = capsys.readouterr().out
        assert said.count("by hand: ") == len(by_hand)
        assert said.startswith(f"looking up {entries(RELEASE, sources(site))} entries of the release at their source")
    assert RELEASE_FILE.read_text(encoding="utf-8") == before, "a dry run writes nothing"


def test_a_newer_chart_comes_with_the_tag_and_digest_of_its_image(site: Site) -> None:
    newer = {"version": "v0.6.0", "appVersion": "v0.5.21"}
    add_charts(site, nvidia_device_plugin={"version": "0.21.0"}, aws_efa_k8s_device_plugin=newer)
    add_image(site, RELEASE.images["aws-efa-k8s-device-plugin"], "v0.5.21")
    offer = offered(site)["charts.aws-efa-k8s-device-plugin"]
    assert offer.held_back == ()
    values = {".".join(change.path[1:]): change.value for change in offer.newer.changes}
    assert values["aws-efa-k8s-device-plugin.version"] == "v0.6.0"
    assert values["aws-efa-k8s-device-plugin.app_version"] == "0.5.21"
    assert values["aws-efa-k8s-device-plugin.tag"] == "v0.5.21"
    assert values["aws-efa-k8s-device-plugin.digest"].startswith("sha256:")


HELD_BACK = {
    "charts.kuberay-operator": ("1.7.0", "the tests run KubeRay operator 1.6.2"),
    "charts.kueue": ("0.20.0", "the tests run Kueue 0.19.2"),
    "charts.cluster-autoscaler": ("9.60.0", "charts_support_the_minor"),
    "charts.kube-prometheus-stack": ("89.0.0", "images prometheus-operator, prometheus-config-reloader"),
    "charts.nvidia-device-plugin": ("0.21.0", "image nvidia-device-plugin: "),
    "images.grafana": ("13.3.0", "chart kube-prometheus-stack names the image: upgrade the chart"),
    "images.python-base": ("3.14-slim-bookworm", "images.python-base.tag is 3.14-slim-bookworm, stack.python is 3.11"),
    "stack.ray": ("99.0.0", "the_lock_matches_the_stack: stack.ray is 99.0.0"),
    "kubernetes": ("1.36", "the_minor_is_supported"),
    "downloads.efa-installer": ("newest", "read its version, check its signature"),
}
"""A newer version of each entry, and the rule that holds it back."""


def test_a_newer_version_is_held_back_by_a_named_rule_and_a_supported_addon_is_offered(site: Site) -> None:
    newest = {name.partition(".")[2]: version for name, (version, _) in HELD_BACK.items() if "charts." in name}
    apps = {"kuberay-operator": "1.7.0", "kueue": "v0.20.0", "cluster-autoscaler": "1.36.0"}
    versions = {name: {"version": version, "appVersion": apps.get(name, "")} for name, version in newest.items()}
    add_charts(site, **{name.replace("-", "_"): one for name, one in versions.items()})
    for name, app in apps.items():
        add_image(site, RELEASE.images[name], f"v{app.removeprefix('v')}")
    add_image(site, RELEASE.images["grafana"], "13.3.0", "14.0.0-rc1", "13.4")
    add_image(site, RELEASE.images["python-base"], "3.14-slim-bookworm")
    addons = {"aws-ebs-csi-driver": "v1.64.0-eksbuild.2", "aws-efs-csi-driver": "v3.4.0-eksbuild.9"}
    packages = {**KNOWN_WEB.packages, "ray": (RELEASE.stack.ray, "99.0.0", "99.1.0rc1")}
    web = Web(packages=packages, files={**KNOWN_WEB.files, LATEST: RemoteFile("2", '"b"')})
    made = offered(site, replace(KNOWN_AWS, newer=addons, kubernetes=("1.34", "1.35", "1.36")), web)
    for name, (version, reason) in HELD_BACK.items():
        offer = made.pop(name)
        assert offer.newer.version == version, name
        assert any(one.startswith(reason) or reason in one for one in offer.held_back), offer.held_back
    assert made.pop("addons.aws-ebs-csi-driver").held_back == ()
    assert set(made) <= {f"images.{name}" for name in apps}, "the minor does not support the other add-on"


def test_the_autoscaler_is_offered_for_the_minor_of_the_cluster(site: Site) -> None:
    name = "cluster-autoscaler"
    add_charts(site, cluster_autoscaler={"version": "9.61.0", "appVersion": "1.36.0"})
    index = yaml.safe_load(site.pages["/charts/index.yaml"][0])
    index["entries"][name].append({"version": "9.60.0", "appVersion": "1.35.1", "digest": "c" * 64})
    site.add_index(yaml.safe_dump(index))
    add_image(site, RELEASE.images[name], "v1.35.1", "v1.36.0")
    offer = offered(site)[f"charts.{name}"]
    assert (offer.newer.version, offer.held_back) == ("9.60.0", ())


def test_a_newer_ami_is_offered_for_the_same_minor(site: Site) -> None:
    amis = {f"node_image.releases.{ami}": "1.35.2-20260101" for ami in RELEASE.node_image.releases}
    reports = tuple(survey(release_with(amis), sources(site, KNOWN_AWS, KNOWN_WEB), done=lambda _: None))
    made = offers(release_with(amis), reports, project=PROJECT)
    assert {(offer.report.name, offer.newer.version, offer.held_back) for offer in made} == {
        (name, "1.35.2-20300101", ()) for name in amis
    }


def test_accepted_upgrades_fit_together_and_leave_out_what_is_held_back(site: Site) -> None:
    add_charts(
        site,
        kueue={"version": "0.20.0", "appVersion": "v0.20.0"},
        nvidia_device_plugin={"version": "0.21.0"},
        aws_efa_k8s_device_plugin={"version": "v0.6.0", "appVersion": "0.5.21"},
    )
    add_image(site, RELEASE.images["aws-efa-k8s-device-plugin"], "v0.5.21")
    changes = changes_of(offered(site).values())
    assert {change.path[:2] for change in changes} == {
        (kind, "aws-efa-k8s-device-plugin") for kind in ("charts", "images")
    }
    upgraded = release_with({".".join(change.path): change.value for change in changes})
    assert findings(upgraded, project=PROJECT) == ()
    assert newest_release([str(upgraded.charts["aws-efa-k8s-device-plugin"].version)]) == "v0.6.0"


def test_only_a_tag_of_the_same_variant_and_numbering_is_newer() -> None:
    for tag, available, newer in (
        ("v0.19.2", ["v0.9.9", "v0.20.0", "v0.19.10"], "v0.20.0"),
        ("v0.19.2", ["v0.19.2", "v0.19.1"], None),
        ("v3.14.0-distroless", ["v3.15.0", "v3.14.1-distroless", "v3.16.0-rc.0-distroless"], "v3.14.1-distroless"),
        ("4.6.0-4.8.3-a", ["4.6.1-4.8.3-ubi9", "4.6.0-4.9.0-a", "4.5.9-5.0.0-a"], "4.6.0-4.9.0-a"),
        ("13.2.0", ["13.3", "13.2.1-ubuntu", "latest", "13.2.1", "9.9.9"], "13.2.1"),
        ("3.11-slim-b", ["3.14-slim-b", "3.15-slim-trixie", "3.14.1-slim-b"], "3.14-slim-b"),
        ("1.8.7", ["sha256-0123.sig", "v1.9.0"], None),
    ):
        assert newer_like(tag, available) == newer, tag


def test_newer_releases_are_no_prereleases() -> None:
    for version, available, newer in (
        ("1.6.2", ["1.7.0", "1.10.0", "1.6.2", "2.0.0-rc.1", "main"], ("1.10.0", "1.7.0")),
        ("v0.5.30", ["v0.5.9", "0.6.0"], ("0.6.0",)),
        ("2.60.0", ["2.60.0", "2.61.0rc0"], ()),
    ):
        assert newer_releases(version, available) == newer, version
