"""The outputs that an environment's program would export, in a file that job submission reads like those of a stack."""

from __future__ import annotations

from pathlib import Path

from infra.preview.recording import record
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.output import writing
from infra.spec.outputs import StackOutputs, read_outputs
from infra.spec.settings import StackSettings
from infra.spec.stack_outputs import outputs_in_file


def recorded_outputs(settings: StackSettings) -> StackOutputs:
    """The outputs of the recorded program: real names, and made-up ids in the right format."""
    return read_outputs({**record(settings).outputs, "is_recorded": True}, file="recorded outputs")


def write_recorded_outputs(outputs: StackOutputs, file: Path) -> None:
    """Write recorded outputs; replaces only an earlier recording of the same environment.

    Raises:
        RefusedError: the file exists and has other content, e.g. the outputs of the real stack.
        SettingsError: the file cannot be written.
    """
    if file.exists() and not _is_recording(outputs, file):
        raise RefusedError(
            f"{file}: exists and is not a recording of {outputs.environment}",
            remedy="choose another FILE, or delete this one",
        )
    with writing(file):
        file.write_text(outputs.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _is_recording(outputs: StackOutputs, file: Path) -> bool:
    """Whether the file has recorded outputs of the same environment."""
    try:
        found = outputs_in_file(file)
    except SettingsError:
        return False
    return found.get("is_recorded") is True and found.get("environment") == outputs.environment
