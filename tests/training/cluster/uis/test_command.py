"""What `open` refuses before it asks a cluster."""

from __future__ import annotations

from tests.training.cli.command import assert_refused

_ALL = "mlflow, grafana, prometheus, alertmanager, ray"


def test_wrong_words_are_refused_with_the_choices() -> None:
    for words, message in (
        ([], f"no UI is named\n  remedy: WHAT=…, one or more of {_ALL}"),
        (["kibana"], f"unknown UI 'kibana'\n  remedy: WHAT=… takes {_ALL}"),
        (["mlflow", "grafana2"], "unknown UI 'grafana2'\n  remedy: did you mean grafana?"),
        (["mlflow", "ray", "--port", "5001"], "port 5001 is one port, for 2 UIs"),
        (["mlflow", "--job", "notes"], "job notes is for WHAT=ray"),
    ):
        assert_refused(2, message, "open", *words, "--env", "dev", "--outputs", "/nowhere")
