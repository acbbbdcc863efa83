"""All checks, in the order in which they are shown. docs/CONFORMANCE.md has a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infra.spec.section import did_you_mean
from training.cluster.conformance.check import Check, Result
from training.errors import SettingsError

NODE_GPUS = Check(name="nodes.gpus", title="Every GPU node offers the GPUs of its instance type.")
NODE_EFA = Check(name="nodes.efa", title="Every node with EFA offers the interfaces of its instance type.")
NODE_DRIVER = Check(name="nodes.driver", title="Every GPU node has the driver branch of the release.")

POD_ADMITTED = Check(name="policy.admitted", title="A team's pod that obeys the rules is admitted.")
POD_PRIVILEGED = Check(name="policy.privileged", title="A privileged pod is refused in a team's namespace.")
POD_HOST_PATH = Check(name="policy.host-path", title="A pod that mounts a folder of its node is refused.")
POD_NFS = Check(name="policy.nfs", title="A pod that mounts a file system past its access points is refused.")
POD_OVERSIZE = Check(name="policy.oversize", title="A pod with more GPUs than the team's quota is refused.")
JOB_LINGERS = Check(
    name="policy.queue", title="A job that would keep GPUs which its queue has given to others is refused."
)
FOREIGN_NAMESPACE = Check(name="policy.namespace", title="A team submits to its own namespace, and to no other team's.")
NETWORK = Check(
    name="network.policies",
    title="A job's pod reaches what the network policies allow, and nothing else.",
    needs_job=True,
)

VOLUMES = Check(name="storage.volumes", title="Each team's runs are on a volume of its own.")
OBJECTS = Check(name="storage.objects", title="A job reads from S3 what it has written.", needs_job=True)
FOREIGN_OBJECTS = Check(
    name="storage.foreign", title="A job cannot write to another team's objects in S3.", needs_job=True
)
FILES = Check(
    name="storage.files", title="All pods read from the shared file system what one has written.", needs_job=True
)

GANG = Check(name="queue.gang", title="The queue admits all pods of a job together.", needs_job=True)
CUDA = Check(name="fabric.cuda", title="The ranks compute with the driver and CUDA of the release.", needs_job=True)
SUM = Check(name="fabric.sum", title="An all-reduce over all pods has the right result.", needs_job=True)
BANDWIDTH = Check(
    name="fabric.bandwidth", title="An all-reduce reaches the floor of the instance type.", needs_job=True
)
EFA_USED = Check(name="fabric.efa", title="The ranks communicate over EFA, not over TCP.", needs_job=True)

LOSS = Check(name="training.loss", title="A training run on several pods ends with a lower loss.", needs_job=True)
RESUME = Check(
    name="training.resume", title="A run whose rank is killed continues from its checkpoint.", needs_job=True
)
TRACKING = Check(name="tracking.run", title="MLflow has the run, with its last step.", needs_job=True)
METRICS = Check(name="metrics.run", title="Prometheus has the metrics of the run.", needs_job=True)
RULES = Check(name="metrics.rules", title="Prometheus evaluates all rules of the release without an error.")
ALERTS = Check(name="metrics.alerts", title="The alert that always fires gets from Prometheus to Alertmanager.")

CHECKS = (
    *(NODE_GPUS, NODE_EFA, NODE_DRIVER),
    *(POD_ADMITTED, POD_PRIVILEGED, POD_HOST_PATH, POD_NFS, POD_OVERSIZE, JOB_LINGERS, FOREIGN_NAMESPACE),
    *(RULES, ALERTS, VOLUMES),
    *(GANG, NETWORK, OBJECTS, FOREIGN_OBJECTS, FILES),
    *(CUDA, SUM, BANDWIDTH, EFA_USED),
    *(LOSS, RESUME, TRACKING, METRICS),
)


def chosen(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks with these ids, or of these groups, e.g. `policy`; all of them if none is named.

    Raises:
        SettingsError: there is no such check; names the nearest.
    """
    if not names:
        return CHECKS
    groups = list(dict.fromkeys(_group(one) for one in CHECKS))
    for name in names:
        known = [*groups, *(one.name for one in CHECKS)]
        if name not in known:
            raise SettingsError(
                f"--only {name}: there is no such check",
                remedy=f"{did_you_mean(name, known)} groups: {', '.join(groups)}".lstrip(),
            )
    return tuple(one for one in CHECKS if one.name in names or _group(one) in names)


def in_order(results: Iterable[Result]) -> list[Result]:
    """Results in the order of the catalogue: checks that wait for the job are made later."""
    places = {one.name: place for place, one in enumerate(CHECKS)}
    return sorted(results, key=lambda one: places[one.check.name])


def _group(check: Check) -> str:
    return check.name.partition(".")[0]
