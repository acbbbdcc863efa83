"""Environment variables of other software that the platform sets, or reads because somebody else has set them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.spec.variables.libraries.ray import RAY
from infra.spec.variables.libraries.services import KUBERNETES, MLFLOW
from infra.spec.variables.libraries.system import SYSTEM
from infra.spec.variables.libraries.torch import TORCH
from infra.spec.variables.variable import Variable

LIBRARIES: Final[Mapping[str, tuple[Variable, ...]]] = {
    "Ray": RAY,
    "PyTorch, NCCL and DeepSpeed": TORCH,
    "MLflow": MLFLOW,
    "Kubernetes, AWS and Grafana": KUBERNETES,
    "Python, Go and the system": SYSTEM,
}
"""By software."""
