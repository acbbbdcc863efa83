"""Variables of Python, Go and the operating system."""

from __future__ import annotations

from infra.spec.variables.variable import Variable

SYSTEM = (
    Variable(
        name="PATH",
        meaning="where programs are found; images and commands put their environment first",
        used_by=(
            "infra.lifecycle",
            "infra/lifecycle/image/derived/Dockerfile",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training",
            "training/image/Dockerfile",
        ),
        library="POSIX",
    ),
    Variable(
        name="HOME",
        meaning="home folder; /tmp in pods",
        used_by=(
            ".ci/run",
            "platform_charts.jobs",
            "platform_charts.objects",
        ),
        library="POSIX",
    ),
    Variable(
        name="LD_LIBRARY_PATH",
        meaning="libraries of EFA and of NCCL's plugin in the CUDA image",
        value="(of /opt/amazon)",
        used_by=("training/image/Dockerfile",),
        library="ld.so",
    ),
    Variable(
        name="DO_NOT_TRACK",
        meaning="libraries send no telemetry",
        value="true",
        used_by=(
            "platform_charts/images/mlflow_server/Dockerfile",
            "training",
            "training/image/Dockerfile",
        ),
        library="several",
    ),
    Variable(
        name="PYTHONPATH",
        meaning="import path: the platform, then the user's code",
        used_by=(
            "Makefile",
            "infra.lifecycle",
            "platform_charts.jobs",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training",
            "training/image/Dockerfile",
        ),
        library="Python",
    ),
    Variable(
        name="PYTHONUNBUFFERED",
        meaning="output appears at once",
        value="1",
        used_by=(
            "infra.lifecycle",
            "platform_charts.jobs",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training",
            "training/image/Dockerfile",
        ),
        library="Python",
    ),
    Variable(
        name="PYTHONDONTWRITEBYTECODE",
        meaning="images have their bytecode already; make takes the variable away",
        value="1",
        used_by=(
            "Makefile",
            "platform_charts/images/mlflow_server/Dockerfile",
            "training/image/Dockerfile",
        ),
        library="Python",
    ),
    Variable(
        name="PYTHONFAULTHANDLER",
        meaning="the trainer image prints stacks when a process crashes",
        value="1",
        used_by=("training/image/Dockerfile",),
        library="Python",
    ),
    Variable(
        name="PYTHONBREAKPOINT",
        meaning="Ray sets it; it is set before Ray's threads run",
        value="ray.util.rpdb._driver_set_trace",
        used_by=("training",),
        library="Python",
        is_kept=True,
    ),
    Variable(
        name="OPENBLAS_MAIN_FREE",
        meaning="NumPy sets it; it is set before Ray's threads run",
        value="1",
        used_by=("training",),
        library="OpenBLAS",
        is_kept=True,
    ),
    Variable(
        name="VIRTUAL_ENV",
        meaning="environment that uv installs into",
        value=".venv",
        used_by=(".make/environment",),
        library="uv",
    ),
    Variable(
        name="UV_LINK_MODE",
        meaning="image builds copy packages from the cache",
        value="copy",
        used_by=(
            "platform_charts/images/mlflow_server/Dockerfile",
            "training/image/Dockerfile",
        ),
        library="uv",
    ),
    Variable(
        name="CGO_ENABLED", meaning="engines are built without C", value="0", used_by=("infra.lifecycle",), library="Go"
    ),
    Variable(
        name="GOFLAGS", meaning="engines are built without the user's flags", used_by=("infra.lifecycle",), library="Go"
    ),
    Variable(
        name="GOWORK",
        meaning="engines are built without the user's workspace",
        value="off",
        used_by=("infra.lifecycle",),
        library="Go",
    ),
    Variable(
        name="GOMAXPROCS",
        meaning="processors of the DCGM exporter",
        value="4",
        used_by=("platform_charts.charts",),
        library="Go",
    ),
    Variable(
        name="RUNLEVEL", meaning="Debian's packages start no servers", value="1", used_by=(".ci/run",), library="Debian"
    ),
    Variable(
        name="DEBIAN_FRONTEND",
        meaning="Debian's packages ask nothing",
        value="noninteractive",
        used_by=(".ci/run",),
        library="Debian",
    ),
    Variable(
        name="_ARGCOMPLETE",
        meaning="set by a shell that asks for completions",
        used_by=("infra.spec",),
        library="argcomplete",
    ),
)
