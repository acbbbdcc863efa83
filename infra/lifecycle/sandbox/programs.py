"""Find the programs of the control plane and of the operators."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.lifecycle.sandbox.modules import KUBERNETES, KWOK, REGISTRY, Module, cache_root
from infra.spec.errors import RefusedError

Programs = Mapping[str, Path]
"""Paths of the control plane's programs, by name."""

NEEDED: Mapping[str, Module] = {program: module for module in (KUBERNETES, KWOK) for program in module.packages}
"""Module of each program that the control plane needs."""

REMEDY = "make engines builds them once with Go, about 20 minutes on 2 cores"


def find_programs(environment: Mapping[str, str]) -> Programs:
    """Find every needed program in `$KUBEBUILDER_ASSETS`, on PATH, or in the cache of `make engines`, in this order.

    Raises:
        RefusedError: a program is missing; names it, and the programs found with another minor version.
    """
    found: dict[str, Path] = {}
    reasons: list[str] = []
    for program, module in NEEDED.items():
        for candidate in _candidates(program, module, environment):
            reason = _reject_reason(program, candidate, environment)
            if reason is None:
                found[program] = candidate
                break
            reasons.append(reason)
    missing = sorted(set(NEEDED) - set(found))
    if missing:
        searched = f"$KUBEBUILDER_ASSETS, PATH and {cache_root(environment)}"
        notes = "".join(f"\n  {reason}" for reason in reasons)
        raise RefusedError(f"{', '.join(missing)}: not found in {searched}{notes}", remedy=REMEDY)
    return found


def find_operator(module: Module, environment: Mapping[str, str]) -> Path | None:
    """Find the program of an operator: by its variable, else in the cache; None if there is none.

    Args:
        module: one of `modules.OPERATORS`.
        environment: may contain the operator's variable; see also `modules.cache_root`.

    Raises:
        RefusedError: the file that the variable names is not executable.
    """
    (program,) = module.packages
    named = environment.get(module.variable or "")
    if named is None:
        built = shutil.which(program, path=str(module.cache_folder(environment)))
        return None if built is None else Path(built)
    if shutil.which(named) is None:
        raise RefusedError(
            f"{module.variable}={named}: not executable",
            remedy=f"set it to the program of {module.title} {module.version}, or unset it and run make engines",
        )
    return Path(named).resolve()


def find_registry(environment: Mapping[str, str]) -> Path:
    """Find the registry in the cache of `make engines`.

    Raises:
        RefusedError: it is not built.
    """
    (program,) = REGISTRY.packages
    found = shutil.which(program, path=str(REGISTRY.cache_folder(environment)))
    if found is None:
        raise RefusedError(f"{REGISTRY.title}: not found in {cache_root(environment)}", remedy=REMEDY)
    return Path(found)


def _candidates(program: str, module: Module, environment: Mapping[str, str]) -> Iterator[Path]:
    assets = environment.get("KUBEBUILDER_ASSETS")
    places = [shutil.which(program, path=assets)] if assets else []
    places.append(shutil.which(program, path=environment.get("PATH", "")))
    places.append(shutil.which(program, path=str(module.cache_folder(environment))))
    return (Path(place) for place in places if place is not None)


def _reject_reason(program: str, candidate: Path, environment: Mapping[str, str]) -> str | None:
    """Why a program is rejected: another minor version of Kubernetes has another API."""
    if not program.startswith("kube-") or candidate.parent == KUBERNETES.cache_folder(environment):
        return None
    minor = KUBERNETES.version.rpartition(".")[0]
    said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return None if said.startswith(f"Kubernetes v{minor}.") else f"{candidate} is {said or 'broken'}, not {minor}"
