"""Variables of PyTorch, its launcher, and what it communicates with."""

from __future__ import annotations

from infra.spec.variables.variable import Variable

TORCH = (
    Variable(name="RANK", meaning="number of the process among all", used_by=("training",), library="torchrun"),
    Variable(name="WORLD_SIZE", meaning="number of all processes", used_by=("training",), library="torchrun"),
    Variable(
        name="LOCAL_RANK",
        meaning="number of the process on its node",
        used_by=("training",),
        library="torchrun",
        is_kept=True,
    ),
    Variable(
        name="LOCAL_WORLD_SIZE", meaning="number of processes on the node", used_by=("training",), library="torchrun"
    ),
    Variable(name="MASTER_ADDR", meaning="address of the first node", used_by=("training",), library="torchrun"),
    Variable(name="MASTER_PORT", meaning="port on the first node", used_by=("training",), library="torchrun"),
    Variable(
        name="NNODES", meaning="number of nodes, for commands of `make run`", used_by=("training",), library="torchrun"
    ),
    Variable(
        name="NODE_RANK",
        meaning="number of the node, for commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="PET_NNODES",
        meaning="option `--nnodes` of torchrun in commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="PET_NPROC_PER_NODE",
        meaning="option `--nproc-per-node` of torchrun in commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="PET_NODE_RANK",
        meaning="option `--node-rank` of torchrun in commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="PET_MASTER_ADDR",
        meaning="option `--master-addr` of torchrun in commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="PET_MASTER_PORT",
        meaning="option `--master-port` of torchrun in commands of `make run`",
        used_by=("training",),
        library="torchrun",
    ),
    Variable(
        name="TORCHELASTIC_USE_AGENT_STORE",
        meaning="a benchmark's ranks have a store of their own",
        value="False",
        used_by=("observability",),
        library="torchrun",
    ),
    Variable(
        name="TORCHINDUCTOR_CACHE_DIR",
        meaning="folder of compiled kernels",
        value="(`kernels` in the run's folder)",
        used_by=("training",),
        library="PyTorch",
    ),
    Variable(
        name="TORCH_FR_BUFFER_SIZE",
        meaning="collectives that the flight recorder keeps",
        value="1000",
        used_by=("training",),
        library="PyTorch",
        is_kept=True,
    ),
    Variable(
        name="TORCH_FR_DUMP_TEMP_FILE",
        meaning="file of the flight recorder",
        value="(in the run's folder)",
        used_by=("training",),
        library="PyTorch",
    ),
    Variable(
        name="TORCH_NCCL_DUMP_ON_TIMEOUT",
        meaning="the flight recorder writes when a collective times out",
        value="1",
        used_by=("training",),
        library="PyTorch",
        is_kept=True,
    ),
    Variable(
        name="KINETO_LOG_LEVEL",
        meaning="no warnings of the profiler",
        value="5",
        used_by=("training",),
        library="PyTorch",
        is_kept=True,
    ),
    Variable(
        name="CUBLAS_WORKSPACE_CONFIG",
        meaning="equal results with `run.deterministic`",
        value=":4096:8",
        used_by=("training",),
        library="cuBLAS",
        is_kept=True,
    ),
    Variable(
        name="TOKENIZERS_PARALLELISM",
        meaning="tokenizers may use threads",
        value="true",
        used_by=("training",),
        library="tokenizers",
        is_kept=True,
    ),
    Variable(
        name="GLOO_SOCKET_IFNAME",
        meaning="network interface of Gloo",
        value="(`eth0` in pods, else the one towards rank 0)",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
        library="Gloo",
        is_kept=True,
    ),
    Variable(
        name="NCCL_SOCKET_IFNAME",
        meaning="network interface of NCCL in pods",
        value="eth0",
        used_by=("platform_charts.jobs",),
        library="NCCL",
    ),
    Variable(
        name="NCCL_DEBUG",
        meaning="log level of NCCL in pods; INFO in the conformance job",
        value="WARN",
        used_by=(
            "platform_charts.jobs",
            "training",
        ),
        library="NCCL",
    ),
    Variable(
        name="NCCL_DEBUG_SUBSYS",
        meaning="what NCCL logs in the conformance job",
        value="INIT,NET",
        used_by=("training",),
        library="NCCL",
    ),
    Variable(
        name="NCCL_DEBUG_FILE",
        meaning="log file of NCCL in the conformance job",
        value="(a temporary file)",
        used_by=("training",),
        library="NCCL",
    ),
    Variable(
        name="FI_PROVIDER",
        meaning="network of libfabric on nodes with EFA",
        value="efa",
        used_by=("platform_charts.jobs",),
        library="libfabric",
    ),
    Variable(
        name="FI_EFA_USE_DEVICE_RDMA",
        meaning="RDMA between GPUs, on instance types that have it",
        value="1",
        used_by=("platform_charts.jobs",),
        library="libfabric",
    ),
    Variable(
        name="DS_ACCELERATOR",
        meaning="device of DeepSpeed",
        value="(`cpu` or `cuda`)",
        used_by=("training",),
        library="DeepSpeed",
    ),
    Variable(
        name="DS_BUILD_OPS",
        meaning="DeepSpeed is installed without compiled operators",
        value="0",
        used_by=(".make/environment",),
        library="DeepSpeed",
    ),
)
