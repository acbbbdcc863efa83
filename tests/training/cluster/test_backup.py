"""What the commands of backups print."""

from __future__ import annotations

import pytest

from platform_charts.images.mlflow_server.backup import report
from training.cluster.backup import REPORT, Output


def test_with_json_only_the_report_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.REPORT == REPORT
    output = Output(as_json=True)
    for line in ("restoring backup b1", f'{REPORT}{{"passed": false}}'):
        output.say(line)
    output.end()
    assert tuple(capsys.readouterr()) == ('{"passed": false}\n', "restoring backup b1\n")


def test_without_json_the_report_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.say(f"{REPORT}{{}}")
    output.say("a line")
    output.end()
    assert tuple(capsys.readouterr()) == ("a line\n", "")
