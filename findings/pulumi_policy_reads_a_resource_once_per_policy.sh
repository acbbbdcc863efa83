#!/usr/bin/env bash
# pulumi-policy 1.21.0 with pulumi 3.272.0: the server converts the properties of a resource from protobuf anew for every policy of the pack,
# also for policies that look at its type only; of a stack, all resources anew for every stack policy. So the CPU time of a preview grows with
# policies times resources, and two policies that call many rules cost a small part of many policies.
# Guess: once per request, shared by the policies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pulumi==3.272.0 pulumi-policy==1.21.0 setuptools==80.9.0
mkdir "$folder/pack"
printf 'name: sample\nruntime: python\n' >"$folder/pack/PulumiPolicy.yaml"
cat >"$folder/pack/__main__.py" <<'PY'
from google.protobuf import json_format
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy, StackValidationPolicy

converted, plain = [], json_format.MessageToDict


def counting(message):
    converted.append(message)
    return plain(message)


json_format.MessageToDict = counting


def reports(args, report):
    report(str(len(converted)))


def looks_at_nothing(args, report):
    pass


PolicyPack(
    "sample",
    [ResourceValidationPolicy(f"r{i}", "d", looks_at_nothing) for i in range(9)]
    + [StackValidationPolicy(f"s{i}", "d", looks_at_nothing) for i in range(4)]
    + [ResourceValidationPolicy("r9", "d", reports), StackValidationPolicy("s4", "d", reports)],
    EnforcementLevel.ADVISORY,
)
PY
cat >"$folder/engine.py" <<'PY'
import subprocess
import sys

import grpc
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

pack = subprocess.Popen(
    [sys.executable, "-u", "-m", "pulumi.policy", "127.0.0.1:0", sys.argv[1]], cwd=sys.argv[1], stdout=subprocess.PIPE, text=True
)
with grpc.insecure_channel(f"127.0.0.1:{pack.stdout.readline().strip()}") as channel:
    stub = analyzer_pb2_grpc.AnalyzerStub(channel)
    one = stub.Analyze(analyzer_pb2.AnalyzeRequest(type="aws:s3/bucket:Bucket", name="b", urn="urn:b"))
    alone = int(one.diagnostics[0].message.splitlines()[-1])
    print("10 resource policies, 1 resource:", alone, "conversions")
    resources = [analyzer_pb2.AnalyzerResource(type="t", name=f"r{i}", urn=f"urn:r{i}") for i in range(100)]
    all_ = stub.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=resources))
    print("5 stack policies, 100 resources:", int(all_.diagnostics[0].message.splitlines()[-1]) - alone, "conversions")
pack.kill()
PY
"$folder/venv/bin/python" "$folder/engine.py" "$folder/pack" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
10 resource policies, 1 resource: 10 conversions
5 stack policies, 100 resources: 500 conversions
SEEN
