"""Ray's own check of a launcher file: its defaults, its loader and its schema, as `ray up` applies them before it asks a cloud."""

from __future__ import annotations

import copy
import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from click import ClickException
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

from training.errors import SettingsError


def check(document: dict[str, Any]) -> dict[str, Any]:
    """The document as Ray completes it.

    Raises:
        SettingsError: Ray refuses it; names the field.
    """
    said = io.StringIO()  # also Ray's warning of every mounted file, which is about containers
    try:
        with redirect_stdout(said), redirect_stderr(said):
            prepared: dict[str, Any] = prepare_config(copy.deepcopy(document))
            validate_config(prepared)
    except ValidationError as error:
        raise _refused(f"{'.'.join(map(str, error.absolute_path)) or 'the file'}: {error.message}") from error
    except ClickException as error:
        raise _refused(said.getvalue().strip().rpartition("\n")[2]) from error
    except (ValueError, RuntimeError) as error:
        raise _refused(str(error)) from error
    return prepared


def _refused(reason: str) -> SettingsError:
    return SettingsError(
        f"Ray's cluster launcher refuses the file: {reason}",
        remedy="change the option that the field comes from; docs/VMS.md lists them",
    )
