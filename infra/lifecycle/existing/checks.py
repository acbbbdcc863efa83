"""The preflight's checks of an existing VPC and an existing cluster, and of a change between them and the stack's own."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.existing.cluster_rules import cluster_problems
from infra.lifecycle.existing.conflicts import conflicts
from infra.lifecycle.existing.place import moves
from infra.lifecycle.existing.vpc_rules import vpc_problems
from infra.lifecycle.preflight.answer import Answer
from infra.lifecycle.preflight.case import Case


def the_stack_stays_where_it_is(case: Case) -> Iterator[Answer]:
    """The settings name the VPC and the cluster that the stack is in, and no name that somebody else's cluster has."""
    yield from moves(case.settings, case.place, owner=case.account.cluster_owner)


def the_existing_vpc_fits_the_platform(case: Case) -> Iterator[Answer]:
    """An existing VPC is as the settings say, and its subnets serve nodes."""
    yield from vpc_problems(case.settings, case.existing_vpc)


def the_existing_cluster_fits_the_platform(case: Case) -> Iterator[Answer]:
    """An existing cluster is as the settings say, and takes the stack's nodes and access entries."""
    yield from cluster_problems(case.settings, case.release, case.existing_cluster)


def nothing_on_the_existing_cluster_conflicts(case: Case) -> Iterator[Answer]:
    """No operator, daemon or object of an existing cluster takes the place of one of the platform's."""
    found, api = case.existing_cluster, case.existing_api
    if found is not None and api is not None:
        yield from conflicts(case.settings, case.release, found, api, case.crds_of_cluster or ())
