#!/usr/bin/env bash
# torch 2.15.0: a module whose layers share a weight keeps it shared through .to(dtype), .half() and deepcopy. .to("meta"), and .to_empty()
# of a module on the meta device, give each layer a parameter of its own, without a word: twice as many parameters for the optimizer, and
# a state_dict that loads two weights that drift apart. With torch.__future__.set_swap_module_params_on_conversion(True) they stay shared.
# Guess: what holds for .to(dtype) holds for .to(device), whatever the device.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action=ignore --target "$folder/packages" torch==2.15.0 numpy
cat >"$folder/run.py" <<'PY'
import copy

import torch
from torch import nn


def tied() -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    layers[1].weight = layers[0].weight
    return layers


def made_on_meta() -> nn.Sequential:
    with torch.device("meta"):
        return tied()


def count(module: nn.Module) -> int:
    return len(list(module.parameters()))


print("dtype", count(tied().to(torch.float64)), "copy", count(copy.deepcopy(tied())), "to_empty", count(tied().to_empty(device="cpu")))
print("to meta", count(tied().to("meta")), "made there", count(made_on_meta()), "to_empty", count(made_on_meta().to_empty(device="cpu")))
torch.__future__.set_swap_module_params_on_conversion(True)
print("swapped", count(tied().to("meta")), count(made_on_meta().to_empty(device="cpu")))
PY
PYTHONPATH=$folder/packages python3 "$folder/run.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
dtype 1 copy 1 to_empty 1
to meta 2 made there 1 to_empty 2
swapped 1 1
SEEN
