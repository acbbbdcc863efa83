"""What `open` refuses before it asks a cluster."""

from __future__ import annotations

import pytest

from training.cli import main
from training.errors import ExitStatus

_ALL = "mlflow, grafana, prometheus, alertmanager, ray"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], f"no UI is named\n  remedy: WHAT=…, one or more of {_ALL}"),
        (["kibana"], f"unknown UI 'kibana'\n  remedy: WHAT=… takes {_ALL}"),
        (["mlflow", "grafana2"], f"unknown UI 'grafana2'\n  remedy: did you mean grafana? WHAT=… takes {_ALL}"),
        (["mlflow", "ray", "--port", "5001"], "port 5001 is one port, for 2 UIs"),
        (["mlflow", "--job", "notes"], "job notes is for WHAT=ray"),
    ],
)
def test_wrong_words_are_refused_with_the_choices(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["open", *words, "--env", "dev", "--outputs", "/nowhere"]) == ExitStatus.WRONG_INPUT
    assert message in capsys.readouterr().err
