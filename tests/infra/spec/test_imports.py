"""infra.spec imports neither Pulumi nor the trainer."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import infra.spec.cost, infra.spec.outputs, infra.spec.protection, infra.spec.release_rules, infra.spec.settings.schema
print(sorted({name.partition(".")[0] for name in sys.modules} & {"pulumi", "pulumi_aws", "torch", "ray", "training"}))
"""


def test_the_spec_imports_neither_pulumi_nor_the_trainer() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
