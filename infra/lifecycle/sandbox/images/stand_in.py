"""A stand-in for the base of our images, where that cannot be pulled: Python, programs and libraries of this machine.

It is laid out like the image that it stands in for: Python in /usr/local, Debian's directories. The rest differs with the
machine, so what is built on it is never pushed to an environment on AWS.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from infra.lifecycle.image import engines
from infra.lifecycle.image.engines import Buildah, ImageEngine
from infra.lifecycle.image.plan import EPOCH
from infra.spec.errors import RefusedError

REPOSITORY = "localhost/ray-train-platform/python-base"
"""Name of the image in the builder's own store."""

Files = Mapping[str, Path | str]
"""Files of the image by path, without the leading slash: a file of this machine, or a text."""

_PROGRAMS = {
    "bash": "bash",
    "coreutils": "basename cat chmod chown cp cut date df dirname du echo env expr false head id install ln ls mkdir mktemp mv nproc "
    "printf pwd readlink realpath rm rmdir seq sha256sum sleep sort stat sync tail tee test timeout touch tr true tty uname uniq wc "
    "whoami",
    "dash": "sh",
    "debianutils": "which",
    "findutils": "find xargs",
    "grep": "grep",
    "hostname": "hostname",
    "libc-bin": "getent ldconfig ldd",
    "mawk": "awk",
    "passwd": "groupadd useradd",
    "procps": "kill",
    "sed": "sed",
    "tar": "tar",
    "util-linux": "flock",
}
"""Programs that the builds of our images run, and that a shell in a pod needs, by Debian package."""

_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

_LIBRARIES = re.compile(r"lib(stdc\+\+|gcc_s|gomp|nss_files|nss_dns|resolv|dl|rt|pthread|util)\.so\.\d+")
"""Libraries that wheels expect of every distribution (PEP 600), and those that libc opens by name."""

_UNUSED = re.compile(
    r"(^|/)(test|tests|site-packages|dist-packages|idlelib|lib2to3|tkinter|turtledemo|__pycache__|config-[^/]*)/|_tkinter\."
)
"""Parts of the standard library that Debian's slim images do without, or that would need a desktop."""

_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:3652:0:99999:7:::\n",
    "etc/gshadow": "root:*::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/login.defs": "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUMASK 022\n",
}
_COPIED = ("etc/services", "etc/protocols", "etc/ssl/certs/ca-certificates.crt")
_FOLDERS = {
    "tmp": 0o1777,
    "var/tmp": 0o1777,
    "root": 0o700,
    **dict.fromkeys(("home", "proc", "sys", "dev", "run"), 0o755),
}
_LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/sbin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/local/bin/python": "python3",
}

_DOCKERFILE = """FROM scratch
COPY root /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \\
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
LABEL ray-train-platform.stand-in="true"
RUN ldconfig && python3 -m ensurepip
CMD ["python3"]
"""


def known_stand_in(builder: ImageEngine, *, python: str) -> str | None:
    """The reference of the stand-in if the builder has it, else None; see `stand_in`."""
    if not isinstance(builder, Buildah) or _this_python() != python:
        return None
    reference = _reference(machine_files(), python)
    return reference if engines.succeeds(builder.has(reference)) else None


def stand_in(builder: ImageEngine, *, python: str, say: Callable[[str], None]) -> str:
    """Build the stand-in; returns its reference.

    Args:
        builder: engine that gets it.
        python: Python minor that our images need, e.g. 3.11.
        say: prints a line of progress.

    Raises:
        RefusedError: this machine has another Python or architecture, lacks a program, or has only docker.
        PlatformError: the engine failed; carries the end of its output.
    """
    _check(builder, python)
    files = machine_files()
    reference = _reference(files, python)
    say(f"building {reference} of this machine's Python {platform.python_version()} and {len(files):,} files")
    with tempfile.TemporaryDirectory(prefix="rtp-base-") as name:
        folder = Path(name)
        _write(files, folder / "root")
        (folder / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
        command = [builder.name, "build", "--quiet", "--timestamp", str(EPOCH), "--tag", reference, str(folder)]
        engines.run(command, log=folder / "log")
    return reference


def machine_files() -> Files:
    """The files of this machine that make up the image; large, because of Python's standard library: about 120 MB.

    Raises:
        RefusedError: a program is missing.
    """
    programs = dict(_programs())
    python = Path(sys.executable).resolve()
    library = dict(_standard_library(Path(sysconfig.get_path("stdlib")), f"usr/local/lib/python{_this_python()}"))
    extensions = [path for path in library.values() if path.suffix == ".so"]
    libc = _libraries([python])[0].parent
    named = [path for path in libc.iterdir() if _LIBRARIES.fullmatch(path.name)]
    found: dict[str, Path | str] = {**_TEXTS, **programs, **library}
    for path in _libraries([python, *programs.values(), *extensions, *named]) + named:
        # A libpython beside the interpreter goes where the loader looks in any case.
        folder = libc if path.is_relative_to(sys.base_prefix) else path.parent
        found[str((folder.resolve() / path.name).relative_to("/"))] = path
    found |= {name: Path("/") / name for name in _COPIED if (Path("/") / name).is_file()}
    return {**found, "usr/local/bin/python3": python}


def _check(builder: ImageEngine, python: str) -> None:
    if not isinstance(builder, Buildah):
        raise RefusedError(
            f"the base of our images cannot be pulled, and {builder.name} builds on images of registries only",
            remedy="connect this machine to the registry of the base image, or use buildah: apt-get install buildah",
        )
    if _this_python() != python:
        raise RefusedError(
            f"the base of our images cannot be pulled, and this Python {_this_python()} cannot stand in for it: images have {python}",
            remedy=f"make env PYTHON=python{python}, or connect this machine to the registry of the base image",
        )
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise RefusedError(
            f"the base of our images cannot be pulled, and {sys.platform} on {platform.machine()} cannot stand in for "
            f"{engines.PLATFORM}",
            remedy="connect this machine to the registry of the base image",
        )


def _this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _programs() -> Iterator[tuple[str, Path]]:
    missing = {}
    for package, name in ((package, name) for package, names in _PROGRAMS.items() for name in names.split()):
        path = shutil.which(name, path=_SYSTEM_PATH)
        if path is None:
            missing[name] = package
        else:
            yield f"usr/{Path(path).parent.name}/{name}", Path(path)
    if missing:
        raise RefusedError(
            f"a stand-in for the base of our images needs {', '.join(missing)}, which this machine lacks",
            remedy=f"install them; on Debian: apt-get install {' '.join(sorted(set(missing.values())))}",
        )


def _standard_library(source: Path, target: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not _UNUSED.search(name):
            yield f"{target}/{name}", path


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """Shared libraries that programs name as needed, and the loader; libc's first."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    paths = {Path(word) for word in said.split() if word.startswith("/") and not word.endswith(":")}
    return sorted(paths, key=lambda path: (not path.name.startswith("libc.so"), path))


def _reference(files: Files, python: str) -> str:
    return f"{REPOSITORY}:{python}-{_fingerprint(files)}"


def _fingerprint(files: Files) -> str:
    """Of paths, contents and the steps of the build; not of times, which the build sets."""
    found = hashlib.sha256(_DOCKERFILE.encode())
    for name, content in sorted(files.items()):
        data = content.encode() if isinstance(content, str) else content.read_bytes()
        found.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return found.hexdigest()[:12]


def _write(files: Files, root: Path) -> None:
    """Copy the files below a folder; everybody may read them, as pods that do not run as root have to."""
    for name, mode in _FOLDERS.items():
        (root / name).mkdir(parents=True)
        (root / name).chmod(mode)
    for name, target in _LINKS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
            path.chmod(0o640 if path.name.endswith("shadow") else 0o644)
        else:
            shutil.copyfile(content, path)
            path.chmod(0o755 if content.stat().st_mode & 0o100 else 0o644)
