"""What changes between two releases, and which changes are refused."""

from __future__ import annotations

import pytest

from infra.lifecycle.upgrade.changes import Change, changes_between, check_direction
from infra.spec.errors import RefusedError
from infra.spec.release import ReleaseManifest, load_release
from tests.infra.spec.samples import changed


def test_every_kind_of_version_is_compared() -> None:
    old = load_release()
    changes = {
        "platform": "0.2.0",
        "kubernetes.version": "1.36",
        "node_image.nvidia_driver": "590",
        "stack.ray": "2.61.0",
        "addons.aws-ebs-csi-driver.version": "v1.64.0-eksbuild.1",
        "charts.kueue.version": "0.20.0",
        "crds.kuberay": "1.7.0",
    }
    assert changes_between(old, old) == ()
    new = ReleaseManifest.model_validate(changed(old.model_dump(), changes))
    ebs, crds = old.addons["aws-ebs-csi-driver"].version, old.crds["kuberay"]
    assert list(map(str, changes_between(old, new))) == [
        f"platform: {old.platform} to 0.2.0",
        f"Kubernetes: {old.kubernetes.version} to 1.36",
        f"node image NVIDIA driver: {old.node_image.nvidia_driver} to 590",
        f"training ray: {old.stack.ray} to 2.61.0",
        f"add-on aws-ebs-csi-driver: {ebs} to v1.64.0-eksbuild.1",
        f"chart kueue: {old.charts['kueue'].version} to 0.20.0",
        f"CRDs kuberay: {crds} to 1.7.0",
    ]


def test_components_come_and_go() -> None:
    new = load_release()
    old = new.model_copy(update={"charts": {name: one for name, one in new.charts.items() if name != "kueue"}})
    version = new.charts["kueue"].version
    assert changes_between(old, new) == (Change(part="chart", name="kueue", old=None, new=version),)
    assert str(changes_between(old, new)[0]) == f"chart kueue: new, {version}"
    assert [str(one) for one in changes_between(new, old)] == [f"chart kueue: removed, was {version}"]


def test_the_next_minor_is_allowed_a_downgrade_and_two_at_once_are_refused() -> None:
    check_direction("0.1.0", "0.1.0", kubernetes="1.35", target="1.35")
    check_direction("0.1.3", "0.2.0", kubernetes="1.35", target="1.36")
    same = ("0.1.0", "0.1.0")
    for platforms, minors, message in (
        (("0.2.0", "0.1.9"), ("1.35", "1.35"), "the platform would go back from 0.2.0 to 0.1.9"),
        (same, ("1.36", "1.35"), "Kubernetes would go back from 1.36 to 1.35"),
        (("0.1.0", "0.3.0"), ("1.35", "1.35"), "the platform would skip a minor version, from 0.1.0 to 0.3.0"),
        (("0.9.0", "2.0.0"), ("1.35", "1.35"), "the platform would skip a minor version, from 0.9.0 to 2.0.0"),
        (("0.1.0", "0.2.0"), ("1.34", "1.36"), "Kubernetes would skip a minor version, from 1.34 to 1.36"),
    ):
        with pytest.raises(RefusedError) as caught:
            check_direction(*platforms, kubernetes=minors[0], target=minors[1])
        assert str(caught.value).startswith(message)
        assert caught.value.remedy
