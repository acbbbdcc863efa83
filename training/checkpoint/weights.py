"""The weights of a checkpoint without its run: in a module, or as one safetensors file.

    python -m training.checkpoint.weights .local/runs/NAME/checkpoints/step-00000500 model.safetensors

The file has whole tensors under the model's names, whichever strategy has saved them. torch's `consolidate_safetensors_files` does not
serve here: it fails on integer buffers, and fills scalars with zeros (torch 2.15, `_consolidate_hf_safetensors.py`).
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from training.checkpoint.manifest import MANIFEST_FILE, Manifest
from training.checkpoint.reader import SavedTensors
from training.checkpoint.sharding import NamedTensors
from training.checkpoint.weights_options import parser


def open_state(checkpoint: Path, state: str = "model") -> SavedTensors:
    """A state's tensors in a committed checkpoint, given by its folder. The hashes are not verified: `make verify` does.

    Raises:
        OSError: the folder has no manifest.
        ValueError: the manifest is damaged, or the checkpoint has no tensors of the state.
    """
    manifest = Manifest.decode((checkpoint / MANIFEST_FILE).read_bytes())
    files = manifest.tensor_files
    if state not in files:
        raise ValueError(f"{checkpoint} has no tensors of {state!r}; it has those of {', '.join(files)}")
    return SavedTensors([checkpoint / file.name for file in files[state]])


def load_weights(checkpoint: Path, module: nn.Module) -> None:
    """Load the weights and buffers of a checkpoint into a bare module of the same model, on any device.

    Raises:
        OSError: the folder has no manifest.
        ValueError: the manifest is damaged, or the checkpoint is of another model.
    """
    state = {name: value.detach() for name, value in module.state_dict().items()}
    saved = open_state(checkpoint)
    shapes, wanted = ({name: value.shape for name, value in one.items()} for one in (saved.describe(), state))
    if shapes != wanted:
        raise ValueError(f"{checkpoint} has the weights of another model")
    saved.read_into(state)


def read_whole(checkpoint: Path, state: str = "model") -> NamedTensors:
    """All tensors of a state, whole, on the CPU.

    Raises:
        OSError: the folder has no manifest.
        ValueError: the manifest is damaged, or the checkpoint has no tensors of the state.
    """
    saved = open_state(checkpoint, state)
    tensors = {name: torch.empty_like(value, device="cpu") for name, value in saved.describe().items()}
    saved.read_into(tensors)
    return tensors


def main() -> None:
    """Write the whole tensors of one state to a file."""
    command_line = parser()
    arguments = command_line.parse_args()
    try:
        save_file(read_whole(arguments.checkpoint, arguments.state), arguments.output, {"format": "pt"})
    except (OSError, ValueError) as error:
        command_line.error(str(error))


if __name__ == "__main__":
    main()
