"""`ray-cluster`: writes a launcher file, with the token that Ray's services of the cluster want."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path
from typing import Any

from infra.spec.command_line import given_flags
from infra.spec.manifest_yaml import write_document
from infra.spec.output import writing
from infra.spec.outputs import StackOutputs, TeamOutput
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT
from platform_charts.jobs.request import Target
from training.cluster.context import read_target, team_named
from training.errors import ExitStatus, SettingsError
from training.options.vms import RayClusterOptions
from training.vms import aws, own
from training.vms.clusters import (
    AwsCluster,
    NodeRange,
    OwnCluster,
    require_ami,
    split_hosts,
    split_profiles,
)
from training.vms.machine import token_file
from training.vms.place import METADATA_KEY, RunPlace

_FOLDER = ROOT / ".local" / "clusters"
_EC2_USER = "ec2-user"
_WIDTH = 120
_TOKEN_BYTES = 32


def ray_cluster(options: RayClusterOptions) -> ExitStatus:
    """Render the file, have Ray check it, and write it."""
    document = _own(options) if options.host else _in_ec2(options)
    from training.vms.ray_check import check  # noqa: PLC0415 - imports Ray, which a refusal does not need

    check(document)
    name = str(document["cluster_name"])
    file = options.out or _FOLDER / f"{name}.yaml"
    if options.out is None:
        file.parent.mkdir(parents=True, exist_ok=True)
    with writing(file):
        file.write_text(to_yaml(document, file), encoding="utf-8")
    _write_token(token_file(name))
    _say_what_next(shlex.quote(_shown(file)), RunPlace.model_validate(document["metadata"][METADATA_KEY]))
    return ExitStatus.DONE


def to_yaml(document: dict[str, Any], file: Path) -> str:
    """The file's text, under a comment that says how to use it."""
    head = f"# Made by ray-train-platform. Start the cluster with\n#   .venv/bin/ray up {shlex.quote(_shown(file))}\n"
    return head + write_document(document, width=_WIDTH)


def _own(options: RayClusterOptions) -> dict[str, Any]:
    _refuse(
        options, ("workers", "group", "spot", "profile", "ami"), why="describes machines in EC2, and HOSTS names some"
    )
    if options.env is None:
        _refuse(
            options,
            ("team", "outputs"),
            why="is about a stack, and no ENV=… names one",
            remedy="add ENV=… (--env), for copies of checkpoints in its bucket, or leave it out",
        )
    head, workers = split_hosts(options.host)
    if options.runs is None:
        raise SettingsError(
            "no folder of the runs: the machines write one run together",
            remedy="RUNS=/nfs/runs (--runs), a folder that all of them share",
        )
    if options.ssh_user is None:
        raise SettingsError("no user of the machines", remedy="SSH_USER=… (--ssh-user)")
    cluster = OwnCluster(
        name=options.name or "ray-own",
        head=head,
        workers=workers,
        ssh_user=options.ssh_user,
        ssh_key=options.ssh_key,
        runs=options.runs,
    )
    stack = None if options.env is None else _bucket_of(options)
    return own.render(cluster, platform=load_release().platform, stack=stack, tracking_uri=options.tracking_uri)


def _bucket_of(options: RayClusterOptions) -> tuple[StackOutputs, TeamOutput]:
    target, team = _stack(options)
    return target.outputs, team


def _in_ec2(options: RayClusterOptions) -> dict[str, Any]:
    _refuse(options, ("ssh_key", "runs"), why="is of machines that exist, which HOSTS names")
    if options.env is None:
        raise SettingsError(
            "which machines? A Ray cluster in EC2 needs a stack, and one of your own the names of its machines",
            remedy='ENV=… (--env), or HOSTS="HEAD WORKER …" (--host)',
        )
    head, workers = split_profiles(options.profile)
    cluster = AwsCluster(
        name=options.name or f"ray-{options.env}",
        workers=NodeRange.parse(options.workers or "0-1"),
        group=options.group,
        is_spot=options.spot,
        head_profile=head,
        worker_profile=workers,
        ami=require_ami(options.ami),
        ssh_user=options.ssh_user or _EC2_USER,
    )
    target, team = _stack(options)
    return aws.render(cluster, target, team, tracking_uri=options.tracking_uri)


def _stack(options: RayClusterOptions) -> tuple[Target, TeamOutput]:
    assert options.env is not None, "asked for with an environment only"
    target = read_target(options.env, file=options.outputs, environment=os.environ)
    return target, team_named(target.outputs, options.team)


def _refuse(
    options: RayClusterOptions, names: tuple[str, ...], *, why: str, remedy: str = "leave out one of the two"
) -> None:
    flags = {f"--{name.replace('_', '-')}" for name in names}
    given = [flag for flag in given_flags(options, "") if flag in flags]
    if given:
        raise SettingsError(f"{given[0]} {why}", remedy=remedy)


def _write_token(file: Path) -> None:
    """Write a random token that only this user reads, unless the cluster has one."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(_TOKEN_BYTES))


def _shown(file: Path) -> str:
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def _say_what_next(file: str, place: RunPlace) -> None:
    print(f"{file}: Ray accepts it")
    print(f"  start it:  .venv/bin/ray up {file}")
    print(f"  train:     make train RAY={file} NAME=first")
    print(f"  end it:    .venv/bin/ray down {file}")
    if place.tracking_uri.startswith("sqlite:"):
        print(f"  MLflow:    a database in {place.runs}, because the machines reach no server; TRACKING=URI names one")
