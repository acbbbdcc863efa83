"""The lower rows of the dashboard of a run: the machines behind it, and what it learns."""

from __future__ import annotations

from observability.alerts.cost import IDLE_PERCENT
from observability.alerts.expressions import RUN
from observability.alerts.nodes import MEMORY_SHARE
from observability.alerts.training import DIVERGED_FLOOR
from observability.dashboards.model import Limit, Panel, Query, Row, Unit
from observability.dashboards.queries import OF_JOB, OF_RUN, of_run

_NODE = "namespace, training_job, pod"
_OF_GPUS = f"and on (namespace, pod) ray_node_mem_total{{{OF_JOB}}}"
"""Keeps the GPUs of the job's pods: DCGM knows pods, and Ray's nodes know the job of each."""


def _node(metric: str) -> str:
    return f"max by ({_NODE}) ({metric}{{{OF_JOB}}})"


MACHINES = Row(
    title="GPUs and nodes of the job",
    panels=(
        Panel(
            title="GPU utilization",
            description="Share of time in which a kernel ran. Close to 100 % in a run that is limited by its GPUs; "
            "equal on all of them.",
            unit=Unit.PERCENT,
            queries=(
                Query(
                    expression=f"max by (pod, gpu) (DCGM_FI_DEV_GPU_UTIL {_OF_GPUS})",
                    legend="{{pod}} GPU {{gpu}}",
                ),
            ),
            limits=(Limit(alert="GpuAllocatedIdle", value=IDLE_PERCENT, is_lower=True),),
            maximum=100,
            opens="rtp-gpu",
        ),
        Panel(
            title="Tensor cores active",
            description="Share of cycles. Low with a high utilization: small kernels, fp32, or waiting for memory.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"max by (pod, gpu) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE {_OF_GPUS})",
                    legend="{{pod}} GPU {{gpu}}",
                ),
            ),
            opens="rtp-gpu",
        ),
        Panel(
            title="GPU memory of each rank",
            description="Allocated by tensors, and reserved by PyTorch's allocator. A wide gap is fragmentation.",
            unit=Unit.BYTES,
            queries=(
                Query(
                    expression=of_run("ray_rtp_train_gpu_memory_bytes", by=f"{RUN}, rank, state"),
                    legend="rank {{rank}} {{state}}",
                ),
            ),
            alerts=("GpuMemoryAlmostFull",),
        ),
        Panel(
            title="CPU of each node",
            description="Of the pod's CPUs. Close to 100 % the loader is out of CPUs, and the run waits for data.",
            unit=Unit.PERCENT,
            queries=(Query(expression=_node("ray_node_cpu_utilization"), legend="{{pod}}"),),
            maximum=100,
            opens="rtp-ray",
        ),
        Panel(
            title="Memory of each node",
            description="Share of the pod's memory. Close to 1, Ray or the kernel kills workers.",
            unit=Unit.RATIO,
            queries=(
                Query(
                    expression=f"{_node('ray_node_mem_used')} / {_node('ray_node_mem_total')}",
                    legend="{{pod}}",
                ),
            ),
            limits=(Limit(alert="RayNodeMemoryHigh", value=MEMORY_SHARE),),
            maximum=1,
            opens="rtp-ray",
        ),
        Panel(
            title="Network of each node",
            description="Bytes per second, sent upwards and received downwards: gradients without EFA, datasets and checkpoints.",
            unit=Unit.BYTES_PER_SECOND,
            queries=(
                Query(expression=_node("ray_node_network_send_speed"), legend="{{pod}} sent"),
                Query(expression=f"-{_node('ray_node_network_receive_speed')}", legend="{{pod}} received"),
            ),
            minimum=None,
            opens="rtp-ray",
        ),
    ),
)

LEARNING = Row(
    title="Learning",
    panels=(
        Panel(
            title="Training loss",
            description=f"Mean over the global batch of the newest step. It falls, with noise; below {DIVERGED_FLOOR} it doubles by "
            "noise.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_loss"), legend="{{run}}"),),
            alerts=("TrainingLossDiverging",),
            minimum=None,
        ),
        Panel(
            title="Evaluation loss",
            description="Of each split in its newest evaluation. A rise while the training loss falls is overfitting.",
            unit=Unit.COUNT,
            queries=(
                Query(expression=of_run("ray_rtp_train_evaluation_loss", by=f"{RUN}, split"), legend="{{split}}"),
            ),
            minimum=None,
        ),
        Panel(
            title="Metrics of evaluations",
            description="Other metrics of the objective, such as accuracy from 0 to 1.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=of_run("ray_rtp_train_evaluation_metric", by=f"{RUN}, split, metric"),
                    legend="{{split}} {{metric}}",
                ),
            ),
            minimum=None,
        ),
        Panel(
            title="Gradient norm",
            description="Global L2 norm before clipping. Peaks come before a loss that diverges.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_gradient_norm"), legend="{{run}}"),),
            alerts=("TrainingLossDiverging",),
        ),
        Panel(
            title="Learning rate",
            description="As the schedule sets it.",
            unit=Unit.COUNT,
            queries=(Query(expression=of_run("ray_rtp_train_learning_rate"), legend="{{run}}"),),
        ),
        Panel(
            title="Steps without effect",
            description="Steps with a NaN or infinite loss or gradient, in 15 minutes; they change no weights. Mixed precision "
            "causes a few while it finds its scale. No line before the first one.",
            unit=Unit.COUNT,
            queries=(
                Query(
                    expression=f"sum by ({RUN}) (increase(ray_rtp_train_nonfinite_steps_total{{{OF_RUN}}}[15m]))",
                    legend="{{run}}",
                ),
            ),
            alerts=("TrainingNonFiniteSteps",),
        ),
    ),
)
