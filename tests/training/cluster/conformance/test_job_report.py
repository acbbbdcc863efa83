"""The size of the suite's job, and defects that only the job can show: each is found, and nothing else is blamed."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from tests.training.cluster.conformance.reports import (
    ALL_REDUCE,
    FABRIC,
    NETWORK,
    OBJECTS,
    RANK,
    SHAPE,
    TRACKING,
    TRAINING,
    WORKLOAD,
    judge,
    reported,
)
from tests.training.cluster.team_cluster import context_on, dev_outputs, target
from training.cluster.conformance.catalogue import CHECKS
from training.cluster.conformance.floors import FAMILIES, floor_of
from training.cluster.conformance.job import SuiteJob, chosen_group, suite_job
from training.cluster.conformance.judges.shape import JobShape
from training.cluster.context import ClusterContext
from training.cluster.state import JobState
from training.conformance.facts import FabricFacts, JobReport, Part
from training.conformance.transport import networks_in
from training.errors import SettingsError

ALL = {one.name for one in CHECKS if one.needs_job}
TCP_LOG = [
    "w-1:79:79 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
    "w-1:79:79 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.1.7<0>",
    "w-1:79:79 [0] NCCL INFO Using network Socket",
]


def _rank(number: int, **changes: object) -> FabricFacts:
    ranks = list(FABRIC.ranks)
    ranks[number] = ranks[number].model_copy(update=changes)
    return FABRIC.model_copy(update={"ranks": tuple(ranks)})


def _all_reduce(**changes: object) -> FabricFacts:
    return FABRIC.model_copy(update={"all_reduce": ALL_REDUCE.model_copy(update=changes)})


def _all_ranks(*hosts: str, **changes: object) -> FabricFacts:
    """The fabric, with the ranks of some pods changed, or all."""
    ranks = (one.model_copy(update=changes if one.host in hosts or not hosts else {}) for one in FABRIC.ranks)
    return FABRIC.model_copy(update={"ranks": tuple(ranks)})


def _changed(**changes: object) -> JobReport:
    """A report, one of whose parts has other facts; a field is named as `part__field`."""
    ((name, value),) = changes.items()
    part, _, field = name.partition("__")
    facts: dict[str, Any] = {"objects": OBJECTS, "network": NETWORK, "training": TRAINING, "tracking": TRACKING}
    return reported(**{part: facts[part].model_copy(update={field: value})})


def test_each_defect_is_found_and_nothing_else_is_blamed() -> None:
    assert judge(reported()).of("passed") == ALL
    other, stale = "cd" * 32, "not read: Stale file handle"
    for report, check, found in (
        (reported(fabric=_rank(3, driver="570.86.10")), "fabric.cuda", "rank 3 on w-0: driver 570.86.10, CUDA 13.2"),
        (reported(fabric=_rank(3, cuda="12.8")), "fabric.cuda", "CUDA 12.8"),
        (reported(fabric=_rank(9, networks=networks_in(TCP_LOG))), "fabric.efa", "rank 9 on w-1: used socket"),
        (reported(fabric=_rank(9, networks=("efa", "libfabric", "socket"))), "fabric.efa", "efa, libfabric, socket"),
        (reported(fabric=_rank(9, networks=())), "fabric.efa", "no network that NCCL names"),
        (reported(fabric=_all_ranks(efa_bytes=0)), "fabric.efa", "the EFA devices of w-0 sent 0 bytes"),
        (reported(fabric=_all_ranks("w-1", efa_bytes=4096)), "fabric.efa", "the EFA devices of w-1 sent 4,096 bytes"),
        (reported(fabric=_all_reduce(bus_bytes_per_second=11e9)), "fabric.bandwidth", "11 GB/s with nccl"),
        (reported(fabric=_all_reduce(is_correct=False)), "fabric.sum", "a wrong sum"),
        (reported(fabric=_rank(15, read_sha256=other)), "storage.files", "rank 15 on w-1: cdcd"),
        (reported(fabric=_rank(15, read_sha256=stale)), "storage.files", "Stale file handle"),
        (_changed(objects__read_sha256=other), "storage.objects", "sha256 cdcd"),
        (_changed(objects__foreign_error=""), "storage.foreign", "was accepted"),
        (_changed(objects__foreign_error="SlowDown"), "storage.foreign", "SlowDown"),
        (_changed(network__denied_error=""), "network.policies", "prometheus:9090: connected"),
        (_changed(network__allowed_error="timed out"), "network.policies", "mlflow:5000 is not reached: timed out"),
        (_changed(network__denied_is_known=False), "network.policies", "prometheus:9090 has no address"),
        (_changed(training__last_loss=2.29), "training.loss", "2.300 -> 2.290"),
        (_changed(training__starts=(0, 0)), "training.resume", "from steps 0, 0"),
        (_changed(training__resumed_loss=2.4), "training.resume", "2.400 after"),
        (_changed(training__killed_rank=None), "training.resume", "no rank was killed"),
        (_changed(tracking__run_id=""), "tracking.run", "no run in http://mlflow:5000"),
        (_changed(tracking__last_step=60), "tracking.run", "with step 60"),
        (_changed(tracking__status="RUNNING"), "tracking.run", "is RUNNING"),
    ):
        told = judge(report)
        assert (told.of("failed"), told.of("passed")) == ({check}, ALL - {check})
        assert found in told.findings[check].found
    half = judge(reported(fabric=FABRIC.model_copy(update={"ranks": FABRIC.ranks[:8]})))
    assert half.of("failed") == {"fabric.sum"}
    assert half.findings["fabric.sum"].found == "8 ranks on 1 pods, a right sum"


def test_the_ranks_of_a_pod_with_the_same_trouble_are_named_together() -> None:
    told = judge(reported(fabric=_all_ranks(networks=("socket",))))
    first, second = told.findings["fabric.efa"].found.split("; ")
    assert first == "ranks 0, 1, 2, 3, 4, 5, 6, 7 on w-0: used socket"
    assert second == "ranks 8, 9, 10, 11, 12, 13, 14, 15 on w-1: used socket"


def test_counters_that_the_pods_do_not_see_are_no_evidence_against_efa() -> None:
    told = judge(reported(fabric=_all_ranks(efa_bytes=None)))
    assert told.of("failed") == set()
    assert "see no counters" in told.findings["fabric.efa"].found


def test_one_node_proves_nothing_about_the_network_between_nodes() -> None:
    shape = replace(SHAPE, pods=1)
    ranks = tuple(one.model_copy(update={"networks": (), "efa_bytes": 0}) for one in FABRIC.ranks[:8])
    fabric = FABRIC.model_copy(update={"ranks": ranks})
    told = judge(reported(fabric=fabric, training=TRAINING.model_copy(update={"ranks": 8})), shape=shape)
    assert told.of("failed") == set()
    assert told.of("skipped") == {"fabric.efa", "fabric.bandwidth", "storage.files"}


def test_a_job_that_is_lost_in_the_middle_keeps_what_it_has_reported() -> None:
    report = reported()
    for part in ("training", "tracking"):
        del report.parts[part]
    told = judge(report, state=None, trouble="the API server has been silent for 180 s")
    assert told.of("passed") == {name for name in ALL if name.startswith(("queue", "network", "storage", "fabric"))}
    assert "silent for 180 s" in told.findings["training.loss"].found


def test_pods_that_were_not_admitted_together_and_missing_metrics_are_found() -> None:
    assert judge(reported(), in_prometheus=False).of("failed") == {"metrics.run"}
    workload = copy.deepcopy(WORKLOAD)
    workload["status"]["admission"]["podSetAssignments"][1]["count"] = 1
    told = judge(reported(), workload=workload)
    assert told.of("failed") == {"queue.gang"}
    assert told.findings["queue.gang"].found == "head 1 of 1, workers 1 of 2"


def test_a_part_that_failed_or_is_missing_is_never_passed() -> None:
    parts: tuple[Part, ...] = ("fabric", "objects", "network", "training", "tracking")
    for part in parts:
        missing, broken = reported(), reported()
        del missing.parts[part]
        broken.parts[part] = broken.parts[part].model_copy(update={"facts": None, "error": "OSError: no space left"})
        for told in (judge(broken), judge(missing, state=JobState(stage="failed", reason="evicted", status=1))):
            failed = told.of("failed")
            assert failed, part
            assert failed.isdisjoint(told.of("passed"))
            assert set(told.findings) == ALL
            assert all(told.findings[one].found.startswith("not known: ") for one in failed)


def test_without_gpus_the_network_is_measured_and_judged_by_no_floor() -> None:
    cpu = RANK.model_copy(update={"device": "cpu", "driver": "", "networks": (), "efa_bytes": None})
    ranks = tuple(cpu.model_copy(update={"rank": one, "host": f"w-{one}"}) for one in range(2))
    measured = ALL_REDUCE.model_copy(update={"backend": "gloo", "bus_bytes_per_second": 0.9e9})
    shape = JobShape(pods=2, gpus=0, efa=0, instance_type="", gpus_per_node=0)
    run = TRAINING.model_copy(update={"ranks": 2})
    fabric = FABRIC.model_copy(update={"ranks": ranks, "all_reduce": measured})
    told = judge(reported(fabric=fabric, training=run), shape=shape)
    assert told.of("failed") == set()
    assert told.of("skipped") == {"fabric.cuda", "fabric.bandwidth", "fabric.efa"}
    assert told.findings["fabric.bandwidth"].found == "0.9 GB/s with gloo: without GPUs there is no floor"


def test_what_proves_nothing_is_skipped() -> None:
    """Part of the GPUs of a node has no floor, and an S3 that stands in for AWS says nothing about other teams."""
    assert judge(reported(), shape=replace(SHAPE, gpus_per_node=16)).of("skipped") == {"fabric.bandwidth"}
    told = judge(reported(objects=OBJECTS.model_copy(update={"endpoint": "http://10.0.0.9", "foreign_error": ""})))
    assert (told.of("skipped"), told.of("failed")) == ({"storage.foreign"}, set())


def test_a_floor_is_above_what_tcp_reaches_and_below_the_network_and_types_without_nvlink_have_none() -> None:
    for listed in (one for one in load_catalog().instances.values() if one.family in FAMILIES):
        floor = floor_of(listed.name)
        assert floor is not None, listed.name
        assert listed.network_gbits is not None
        assert 0.3 * listed.network_gbits / 8 < floor / 1e9 < listed.network_gbits / 8, listed.name
    assert floor_of("g6e.48xlarge") is None


NOW = datetime(2026, 11, 24, 8, 30, tzinfo=UTC)
(A10G,) = [one for one in dev_outputs()["gpu_groups"] if one["name"] == "a10g"]


def group(name: str, **changes: object) -> dict[str, Any]:
    labels = {key: name if value == "a10g" else value for key, value in A10G["labels"].items()}
    return {**A10G, "name": name, "labels": labels, "capacity_type": "ON_DEMAND", **changes}


def stack(*groups: dict[str, Any]) -> ClusterContext:
    return context_on(target(gpu_groups=list(groups)))


def best(*groups: dict[str, Any]) -> str | None:
    """The group that is taken if none is named."""
    found = chosen_group(stack(*groups), name=None, use_gpu=None)
    return None if found is None else found.name


def job(*groups: dict[str, Any]) -> SuiteJob:
    context = stack(*groups)
    return suite_job(context, group=chosen_group(context, name=None, use_gpu=None), now=NOW)


def settings_of(made: SuiteJob) -> dict[str, Any]:
    (config,) = [one for one in made.manifests if one["kind"] == "ConfigMap"]
    (text,) = [value for key, value in config["data"].items() if key.endswith(".yaml")]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_two_nodes_come_before_one_on_demand_before_spot_and_the_cheapest_first() -> None:
    one = group("one", max_nodes=1, instance_type="g5.xlarge", gpus_per_node=1, efa_per_node=0)
    spot = group("spot", capacity_type="SPOT", instance_type="g5.xlarge", gpus_per_node=1, efa_per_node=0)
    dear = group("dear", instance_type="g5.48xlarge", gpus_per_node=8)
    block = group("block", instance_type="g5.xlarge", drain_before=(NOW + timedelta(days=1)).isoformat())
    shared = group("shared", devices_per_gpu=4)
    assert best(one, spot, dear, group("plain"), block, shared) == "plain"
    assert best(one, spot, dear, block, shared) == "dear"
    assert best(one, spot, block, shared) == "spot"
    assert best(one, block, shared) == "one"
    assert best(block, shared) is None
    assert best() is None


def test_a_stack_without_a_group_for_the_job_is_refused_where_gpus_or_a_group_are_asked_for() -> None:
    with pytest.raises(RefusedError, match="has no GPU group for the job"):
        chosen_group(stack(group("shared", devices_per_gpu=4)), name=None, use_gpu=True)
    with pytest.raises(SettingsError, match="no such GPU group") as refused:
        chosen_group(stack(), name="a10g", use_gpu=None)
    assert "it has none" in str(refused.value)


def test_the_job_has_all_gpus_of_two_nodes_or_of_the_only_one_and_a_rank_to_kill() -> None:
    small = {"max_nodes": 1, "instance_type": "g5.xlarge", "gpus_per_node": 1, "efa_per_node": 0}
    for groups, shape, killed in (
        ([group("plain")], (2, 4, 8), 1),
        ([group("one", max_nodes=1)], (1, 4, 4), 1),
        ([group("one", **small)], (1, 1, 1), 0),
    ):
        made = job(*groups)
        assert (made.shape.pods, made.shape.gpus, made.shape.ranks) == shape
        settings = settings_of(made)
        assert (settings["scale"]["workers"], settings["data"]["options"]["rank"]) == (shape[2], killed)
        assert settings["loop"]["global_batch"] % shape[2] == 0
    made = job()
    assert (made.shape.pods, made.shape.gpus, made.group, made.dollars_per_hour) == (2, 0, None, None)
