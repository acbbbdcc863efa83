"""Cases of `observability.alerts.network`."""

from __future__ import annotations

from tests.observability.alerts.cases.case import Case, flat, rising, series

_POD = {"namespace": "vision", "pod": "first-workers-0"}
_SENT = series("container_network_transmit_bytes_total", **_POD, interface="eth0")
_EFA = series("kube_pod_container_resource_requests", **_POD, container="ray", resource="vpc_amazonaws_com_efa")
_MINUTE = 60

CASES = (
    Case(
        alert="EfaFallback",
        at=30,
        series={_SENT: rising(300e6 * _MINUTE, 30), _EFA: flat(4, 30)},
        labels=_POD,
        summary="vision/first-workers-0 has EFA, and sends 300MB/s over TCP.",
        silent={
            "little over TCP": {_SENT: rising(200e6 * _MINUTE, 30)},
            "a pod without EFA": {_EFA: ""},
            "an upload of ten minutes": {_SENT: f"0+0x18 0+{300e6 * _MINUTE}x12"},
        },
    ),
)
