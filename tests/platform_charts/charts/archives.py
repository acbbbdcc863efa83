"""Small fake charts for every chart of a release, with CRDs where the real one has them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest
from platform_charts.charts.crds import CRD_GROUPS

_CONFIG_MAP = """apiVersion: v1
kind: ConfigMap
metadata: { name: "{{ .Release.Name }}-values" }
data: { values: {{ .Values | toJson | quote }} }
"""


_TAKES_TIME = """apiVersion: batch/v1
kind: Job
metadata:
  name: "{{ .Release.Name }}-hook"
  annotations: { helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation }
spec:
  template:
    spec:
      restartPolicy: Never
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: RuntimeDefault } }
      containers:
        - name: hook
          image: hook:1
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: "{{ .Release.Name }}-sample", labels: { app.kubernetes.io/managed-by: Helm } }
spec:
  selector: { matchLabels: { sample: "{{ .Release.Name }}" } }
  template:
    metadata: { labels: { sample: "{{ .Release.Name }}" } }
    spec:
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: RuntimeDefault } }
      containers:
        - name: sample
          image: sample:1
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
"""


def crd(plural: str, group: str, **changes: object) -> Manifest:
    """A CRD with the version v1; `changes` replace fields of its spec."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize(), "listKind": "List"},
        "versions": [version],
        **changes,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


def archive(files: Mapping[str, str]) -> bytes:
    """A packaged chart with these files: the same bytes whenever it is made."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as packed,
    ):
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def chart(name: str, version: str, *, takes_time: bool = False) -> bytes:
    """A chart with its values in a ConfigMap, and CRDs where the real chart has them.

    One that takes time has a hook and a Deployment, for which Helm waits.
    """
    head = {"apiVersion": "v2", "name": name, "version": version.removeprefix("v")}
    files = {f"{name}/Chart.yaml": yaml.safe_dump(head), f"{name}/templates/values.yaml": _CONFIG_MAP}
    if takes_time:
        files[f"{name}/templates/time.yaml"] = _TAKES_TIME
    if name in CRD_GROUPS:
        folder = name
        if name == "kube-prometheus-stack":
            folder = f"{name}/charts/crds"
            files[f"{folder}/Chart.yaml"] = yaml.safe_dump({**head, "name": "crds"})
        files[f"{folder}/crds/widgets.yaml"] = yaml.safe_dump(crd("widgets", CRD_GROUPS[name]))
    return archive(files)


def charts(release: ReleaseManifest, *, take_time: bool = False) -> dict[str, bytes]:
    """A fake chart for every chart of the release, by name."""
    return {name: chart(name, str(one.version), takes_time=take_time) for name, one in release.charts.items()}


def write_archives(release: ReleaseManifest, folder: Path) -> ReleaseManifest:
    """Write fake charts into the archive folder; returns a release that pins them."""
    folder.mkdir(parents=True, exist_ok=True)
    pinned = {}
    for name, content in charts(release).items():
        (folder / f"{name}-{release.charts[name].version}.tgz").write_bytes(content)
        pinned[name] = release.charts[name].model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    return release.model_copy(update={"charts": pinned})
