"""What the commands of backups print."""

from __future__ import annotations

import pytest

from platform_charts.images.mlflow_server.backup import report
from training.cluster.backup import REPORT, Output


def test_the_report_is_printed_with_json_only_and_then_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.REPORT == REPORT
    for as_json, out, err in ((True, '{"passed": false}\n', "a line\n"), (False, "a line\n", "")):
        output = Output(as_json=as_json)
        for line in ("a line", f'{REPORT}{{"passed": false}}'):
            output.say(line)
        output.end()
        assert tuple(capsys.readouterr()) == (out, err)
