"""The programs of a control plane and of its operators: which one is taken, and from where."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.lifecycle.sandbox.modules import KUBERNETES, KWOK, Module, cache_root
from infra.spec.errors import RefusedError

Programs = Mapping[str, Path]
"""Where each program of a control plane lies, by its name."""

NEEDED: Mapping[str, Module] = {program: module for module in (KUBERNETES, KWOK) for program in module.packages}
"""Module of each program without which there is no control plane."""

REMEDY = "build them once with the Go toolchain, about 13 minutes on 2 cores: make engines"


def find(environment: Mapping[str, str]) -> Programs:
    """Every needed program: from `$KUBEBUILDER_ASSETS`, else from PATH, else from the cache that `make engines` fills.

    Raises:
        RefusedError: names the programs that are in none of them, and the ones there of another minor version.
    """
    found: dict[str, Path] = {}
    reasons: list[str] = []
    for program, module in NEEDED.items():
        for candidate in _candidates(program, module, environment):
            complaint = _complaint(program, candidate, environment)
            if complaint is None:
                found[program] = candidate
                break
            reasons.append(complaint)
    missing = sorted(set(NEEDED) - set(found))
    if missing:
        looked = f"$KUBEBUILDER_ASSETS, PATH and {cache_root(environment)}"
        notes = "".join(f"\n  {reason}" for reason in reasons)
        raise RefusedError(f"{', '.join(missing)}: not in {looked}{notes}", remedy=REMEDY)
    return found


def find_operator(module: Module, environment: Mapping[str, str]) -> Path | None:
    """The program of an operator: the one that its variable names, else the built one; None where there is none.

    Args:
        module: one of `modules.OPERATORS`.
        environment: with the variables.

    Raises:
        RefusedError: the variable names something else than a program.
    """
    (program,) = module.packages
    named = environment.get(module.variable or "")
    if named is None:
        built = shutil.which(program, path=str(module.cache_folder(environment)))
        return None if built is None else Path(built)
    if shutil.which(named) is None:
        raise RefusedError(
            f"{module.variable}={named} is no program",
            remedy=f"name {module.title}'s, of version {module.version}, or unset it: make engines builds one",
        )
    return Path(named).resolve()


def _candidates(program: str, module: Module, environment: Mapping[str, str]) -> Iterator[Path]:
    assets = environment.get("KUBEBUILDER_ASSETS")
    places = [shutil.which(program, path=assets)] if assets else []
    places.append(shutil.which(program, path=environment.get("PATH", "")))
    places.append(shutil.which(program, path=str(module.cache_folder(environment))))
    return (Path(place) for place in places if place is not None)


def _complaint(program: str, candidate: Path, environment: Mapping[str, str]) -> str | None:
    """Why a program is passed over: the API of another minor version of Kubernetes is another API."""
    if not program.startswith("kube-") or candidate.parent == KUBERNETES.cache_folder(environment):
        return None
    minor = KUBERNETES.version.rpartition(".")[0]
    said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return None if said.startswith(f"Kubernetes v{minor}.") else f"{candidate} is {said or 'broken'}, not {minor}"
