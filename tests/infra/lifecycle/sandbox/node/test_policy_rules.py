"""Rules of iptables that follow from NetworkPolicies, evaluated as the kernel does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.sandbox.node.policies.enforcer import Settings, state_of
from infra.lifecycle.sandbox.node.policies.rules import Ranges, State, chains, first_input, next_input
from infra.lifecycle.sandbox.node.policies.selection import Pod, addressed_pods, matches
from infra.spec.manifest import Manifest

LOCAL = IPv4Network("10.208.1.0/24")
RANGES = Ranges(local=LOCAL)


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection, after the translation of a Service, whose address and port `original` holds."""

    source: str
    target: str
    port: int
    protocol: str = "tcp"
    original: tuple[str, int] | None = None


def passes(found: Mapping[str, Sequence[str]], packet: Packet) -> bool:
    return _verdict(found, "RTP-POLICIES", packet) != "DROP"


def _verdict(found: Mapping[str, Sequence[str]], chain: str, packet: Packet) -> str:
    for rule in found[chain]:
        *match, jump, target = rule.split()
        if not _matches(match, packet):
            continue
        if target in {"DROP", "RETURN", "ACCEPT"}:
            return target
        verdict = _verdict(found, target, packet)
        if verdict == "DROP" or jump == "-g":
            return verdict
    return "RETURN"


def _matches(match: list[str], packet: Packet) -> bool:
    words, is_negated = iter(match), False
    original, original_port = packet.original or (packet.target, packet.port)
    address = {"-s": packet.source, "-d": packet.target, "--ctorigsrc": packet.source, "--ctorigdst": original}
    number = {"--dport": packet.port, "--ctorigdstport": original_port}
    for flag in words:
        if flag == "!":
            is_negated = True
            continue
        value = next(words)
        if flag == "-m":
            continue
        if flag in address:
            holds = IPv4Address(address[flag]) in IPv4Network(value)
        elif flag in number:
            first, _, last = value.partition(":")
            holds = int(first) <= number[flag] <= int(last)
        else:
            assert flag in {"-p", "--ctstate"}
            holds = flag == "-p" and value == packet.protocol
        if holds == is_negated:
            return False
        is_negated = False
    return True


A = Pod(namespace="a", labels={"app": "one"}, address="10.208.1.2", ports={("TCP", "web"): 8080})
B = Pod(namespace="b", labels={"app": "two", "tier": "gold"}, address="10.208.2.3", ports={("TCP", "web"): 9090})
NAMESPACES = {"a": {"team": "a"}, "b": {"team": "b"}}


def policy(*, namespace: str = "a", selector: Manifest | None = None, **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a NetworkPolicySpec
    """A NetworkPolicy of the directions that it has rules for."""
    types = [direction for direction in ("Ingress", "Egress") if direction.lower() in spec]
    return {
        "metadata": {"namespace": namespace, "name": "test"},
        "spec": {"podSelector": selector or {}, "policyTypes": types, **spec},
    }


def rules_of(*policies: Manifest, ranges: Ranges = RANGES) -> dict[str, list[str]]:
    """The chains for pods A, on this node, and B, on another."""
    return chains(State(policies=policies, pods=(A, B), namespaces=NAMESPACES), ranges)


def incoming(port: int = 8080, *, source: str = B.address, protocol: str = "tcp") -> Packet:
    return Packet(source, A.address, port, protocol)


def outgoing(port: int = 9090, *, target: str = B.address, original: tuple[str, int] | None = None) -> Packet:
    return Packet(A.address, target, port, original=original)


def test_a_pod_without_policies_reaches_everything_and_an_unknown_one_nothing() -> None:
    found = rules_of()
    assert passes(found, incoming())
    assert passes(found, outgoing())
    assert not passes(found, replace(incoming(), target="10.208.1.99"))
    assert not passes(found, replace(outgoing(), source="10.208.1.99"))
    assert not passes(chains(State(), RANGES), incoming())


def test_a_policy_isolates_the_pods_that_it_selects_in_its_directions_only() -> None:
    assert not passes(rules_of(policy(ingress=[])), incoming())
    assert passes(rules_of(policy(ingress=[])), outgoing())
    assert not passes(rules_of(policy(egress=[])), outgoing())
    assert passes(rules_of(policy(egress=[])), incoming())
    assert passes(rules_of(policy(ingress=[], selector={"matchLabels": {"app": "two"}})), incoming())
    assert passes(rules_of(policy(ingress=[], namespace="b")), incoming())
    allow = policy(ingress=[{"ports": [{"port": 80}]}])
    assert passes(rules_of(policy(ingress=[]), allow), incoming(80)), "policies add up"
    assert not passes(rules_of(policy(ingress=[]), allow), incoming(81))


PEERS: tuple[tuple[Manifest, bool], ...] = (
    ({"podSelector": {}}, False),  # of the policy's own namespace
    ({"namespaceSelector": {}}, True),
    ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, True),
    ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, False),
    ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "two"}}}, True),
    ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "one"}}}, False),
    ({"ipBlock": {"cidr": "10.208.2.0/24"}}, True),
    ({"ipBlock": {"cidr": "10.208.2.0/24", "except": ["10.208.2.0/30", "10.208.2.9/32"]}}, False),
    ({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.208.2.9/32"]}}, True),
    ({"ipBlock": {"cidr": "::/0"}}, False),
)


def test_peers_are_selected_by_pod_namespace_and_address() -> None:
    for peer, is_allowed in PEERS:
        assert passes(rules_of(policy(ingress=[{"from": [peer]}])), incoming()) == is_allowed, peer
        assert passes(rules_of(policy(egress=[{"to": [peer]}])), outgoing()) == is_allowed, peer


def test_ports_are_numbers_ranges_and_names() -> None:
    cases: tuple[tuple[Manifest, set[int]], ...] = (
        ({}, {1, 80, 8080, 9090}),
        ({"port": 80}, {80}),
        ({"port": 80, "endPort": 8080}, {80, 8080}),
        ({"port": 80, "protocol": "UDP"}, set()),
        ({"port": "web"}, {8080}),
        ({"port": "other"}, set()),
    )
    for port, numbers in cases:
        found = rules_of(policy(ingress=[{"ports": [port]}]))
        assert {number for number in (1, 80, 8080, 9090) if passes(found, incoming(number))} == numbers, port
    named = rules_of(policy(egress=[{"ports": [{"port": "web"}]}]))
    assert passes(named, outgoing(9090)), "the name is that of the pod that is reached"
    assert not passes(named, outgoing(8080))
    sctp = rules_of(policy(ingress=[{"ports": [{"protocol": "SCTP", "port": 80}]}]))
    assert passes(sctp, incoming(80, protocol="sctp"))
    assert not passes(sctp, incoming(80))


def test_a_block_holds_the_cluster_ip_that_a_pod_connects_to_and_not_the_pod_behind_it() -> None:
    found = rules_of(policy(egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 443}]}]))
    assert passes(found, outgoing(6443, original=("10.0.0.1", 443)))
    assert not passes(found, outgoing(6443))
    assert not passes(found, outgoing(443, original=("10.0.0.2", 443)))
    selected = rules_of(policy(egress=[{"to": [{"namespaceSelector": {}}], "ports": [{"port": 9090}]}]))
    assert passes(selected, outgoing(9090, original=("10.0.0.7", 80))), "whatever the port of its Service is"
    itself = Packet(A.address, A.address, 8080)
    assert passes(rules_of(policy(ingress=[], egress=[])), itself), "a pod reaches itself through a Service"


def test_a_range_of_the_sandbox_is_in_every_block_that_holds_the_environment_s() -> None:
    aliases = [(IPv4Network("10.16.0.0/18"), IPv4Network("10.208.0.0/16"))]

    def allows(block: Manifest) -> bool:
        found = rules_of(policy(egress=[{"to": [{"ipBlock": block}]}]), ranges=replace(RANGES, aliases=aliases))
        return passes(found, outgoing())

    assert allows({"cidr": "10.16.0.0/18"})
    assert allows({"cidr": "10.16.0.0/16"})
    assert not allows({"cidr": "10.16.0.0/20"})
    assert not allows({"cidr": "10.16.0.0/16", "except": ["10.16.0.0/17"]})


def test_selectors_have_expressions() -> None:
    for key, operator, values, is_selected in (
        ("app", "In", ["one", "two"], True),
        ("app", "In", ["three"], False),
        ("app", "NotIn", ["two"], False),
        ("missing", "NotIn", ["two"], True),
        ("tier", "Exists", [], True),
        ("tier", "DoesNotExist", [], False),
    ):
        expression = {"key": key, "operator": operator, **({"values": values} if values else {})}
        assert matches({"matchExpressions": [expression]}, B.labels) == is_selected, expression


def test_the_enforcer_takes_the_addresses_of_its_own_pods_from_the_register_alone() -> None:
    def manifest(name: str, address: str) -> Manifest:
        return {"metadata": {"namespace": name}, "spec": {"containers": []}, "status": {"podIP": address}}

    addresses = (("starting", ""), ("gone", "10.208.1.7"), ("elsewhere", "10.208.2.3"))
    pods = {str(number): manifest(*one) for number, one in enumerate(addresses, start=1)}
    stand_ins = [("kube-system", dict[str, str](), "10.208.0.2")]
    settings = Settings(kubeconfig="", local=str(LOCAL), register="", aliases=[], stand_ins=stand_ins)
    found: dict[str, dict[str, Manifest]] = {"Pod": pods, "NetworkPolicy": {}, "Namespace": {}}
    state = state_of(found, {"10.208.1.8": "1"}, settings)
    assert {pod.namespace: pod.address for pod in state.pods} == {
        "starting": "10.208.1.8",
        "elsewhere": "10.208.2.3",
        "kube-system": "10.208.0.2",
    }


def test_ended_pods_and_those_of_the_host_network_have_no_address_of_their_own() -> None:
    port = {"name": "web", "containerPort": 8080}

    def manifest(phase: str, **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a PodSpec
        return {
            "metadata": {"namespace": "a", "labels": {"app": "one"}},
            "spec": {"containers": [{"ports": [port]}], **spec},
            "status": {"phase": phase, "podIP": A.address},
        }

    running, ended, host = manifest("Running"), manifest("Succeeded"), manifest("Running", hostNetwork=True)
    assert list(addressed_pods([running, ended, host])) == [A]


def test_iptables_takes_the_rules_and_replaces_them_without_a_rest(tmp_path: Path) -> None:
    restore, save = (shutil.which(f"iptables-{action}", path="/usr/sbin:/sbin") for action in ("restore", "save"))
    if os.geteuid() != 0 or restore is None or save is None:
        pytest.skip("needs root and iptables")
    isolated = policy(
        ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}],
        egress=[
            {"ports": [{"port": 1, "endPort": 9}, {"port": 53, "protocol": "UDP"}, {"protocol": "SCTP", "port": 7}]}
        ],
    )
    saved = f":RTP-FROM-{A.address} - [0:0]\n:RTP-TO-{A.address} - [0:0]\n"
    inputs = (first_input(LOCAL), next_input(rules_of(isolated), ""), next_input(rules_of(), saved))
    for number, text in enumerate(inputs):
        (tmp_path / str(number)).write_text(text)
    step = f"{restore} --noflush {tmp_path}/{{}} && {save} -t mangle && echo ---- && "
    command = ["unshare", "--net", "bash", "-c", "".join(step.format(number) for number in range(3)) + "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second, third, _ = done.stdout.split("----\n")
    assert [text.count("-j RTP-POLICIES") for text in (first, second, third)] == [2, 2, 2]
    assert [f"RTP-TO-{A.address}" in text for text in (first, second, third)] == [False, True, False]
