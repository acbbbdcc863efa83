"""CNI plugin, called after the one that gives a pod its address: no container of the pod starts before its NetworkPolicies hold.

It speaks version 0.4 of the specification:
https://www.cni.dev/docs/spec/#section-2-execution-protocol
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.lifecycle.sandbox.node.policies.register import Register

TYPE = "network-policies"
"""Name of the plugin's program."""

_SECONDS = 60.0
_TRY_AGAIN = 11
"""Error code of the specification: the runtime may call again later."""


def call(environment: Mapping[str, str], settings: Mapping[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """Serve one call of the container runtime.

    Args:
        environment: the call's parameters, `CNI_…`.
        settings: the plugin's configuration; `register` is the folder of the `Register`.

    Returns:
        exit status, and what to print.
    """
    command, version = environment["CNI_COMMAND"], settings.get("cniVersion", "0.4.0")
    if command == "VERSION":
        return 0, {"cniVersion": version, "supportedVersions": ["0.3.0", "0.3.1", "0.4.0"]}
    register, sandbox = Register(Path(settings["register"])), environment["CNI_CONTAINERID"]
    if command == "DEL":
        register.remove(sandbox)
    if command != "ADD":
        return 0, None
    result: dict[str, Any] = settings["prevResult"]
    address = result["ips"][0]["address"].partition("/")[0]
    words = dict(word.partition("=")[::2] for word in environment["CNI_ARGS"].split(";"))
    uid = words["K8S_POD_UID"]
    register.add(sandbox, address=address, uid=uid)
    if register.await_confirmed(address, uid, seconds=_SECONDS):
        return 0, result
    pod = f"{words['K8S_POD_NAMESPACE']}/{words['K8S_POD_NAME']}"
    message = (
        f"the NetworkPolicies of pod {pod} do not hold after {_SECONDS:.0f} s: see network-policies.log of the node"
    )
    return 1, {"cniVersion": version, "code": _TRY_AGAIN, "msg": message}


if __name__ == "__main__":
    _status, _answer = call(os.environ, json.load(sys.stdin))
    if _answer is not None:
        print(json.dumps(_answer))
    sys.exit(_status)
