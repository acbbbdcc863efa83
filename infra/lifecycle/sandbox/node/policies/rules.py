"""Rules of iptables for the pods of one node, from all NetworkPolicies.

They are in the table `mangle`, whose hooks run after the translation of Services and before `filter`, where kube-proxy accepts packets.
Per pod and direction there is a chain; it ends with DROP if a policy isolates the pod, and a rule returns for what is allowed:

    FORWARD, INPUT -> RTP-POLICIES -> RTP-FROM -> RTP-FROM-10.208.1.2     from a pod of this node
                                   -> RTP-TO   -> RTP-TO-10.208.1.3       to a pod of this node
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Any, Literal

from infra.lifecycle.sandbox.node.policies.selection import Pod, peers, selecting
from infra.spec.manifest import Manifest

TABLE = "mangle"
"""Table of the rules."""

_ROOT, _FROM, _TO = "RTP-POLICIES", "RTP-FROM", "RTP-TO"
_HOOKS = ("FORWARD", "INPUT")
_ANYWHERE: Manifest = {"ipBlock": {"cidr": "0.0.0.0/0"}}
_ANY_POD: Manifest = {"namespaceSelector": {}}

Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, kw_only=True)
class State:
    """What the rules follow from.

    Attributes:
        policies: NetworkPolicies of all namespaces, as the API server has them.
        pods: all pods with an address.
        namespaces: labels of each namespace.
    """

    policies: Sequence[Manifest] = ()
    pods: Sequence[Pod] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Address ranges of a sandbox.

    Attributes:
        local: the pods of this node.
        aliases: range of the environment, and the range of the sandbox in its place: a block that contains the first contains the
            second too.
    """

    local: IPv4Network
    aliases: Sequence[tuple[IPv4Network, IPv4Network]] = ()


def chains(state: State, ranges: Ranges) -> dict[str, list[str]]:
    """The chains by name; each is a list of rules, as `iptables -A CHAIN` takes them.

    A pod that is not in `state` can neither send nor receive anything.
    """
    local = sorted((pod for pod in state.pods if IPv4Address(pod.address) in ranges.local), key=_by_address)
    found = {
        _ROOT: [
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-s {ranges.local} -j {_FROM}",
            f"-d {ranges.local} -j {_TO}",
        ]
    }
    directions: tuple[tuple[Direction, str, str], ...] = (("Egress", _FROM, "-s"), ("Ingress", _TO, "-d"))
    for direction, name, flag in directions:
        found[name] = []
        for pod in local:
            own = f"{name}-{pod.address}"
            isolating = selecting(state.policies, pod, direction)
            if isolating:
                found[own] = [f"-s {pod.address} -d {pod.address} -j RETURN"]  # to itself, through a Service
                allowed = _allowed(isolating, pod, direction, state, ranges)
                found[own] += [f"{match} -j RETURN".strip() for match in dict.fromkeys(allowed)]
                found[own].append("-j DROP")
            # Return from a chain that was reached by -g leads to the caller of this one.
            found[name].append(f"{flag} {pod.address} " + (f"-g {own}" if isolating else "-j RETURN"))
        found[name].append("-j DROP")
    return found


def first_input(local: IPv4Network) -> str:
    """Input of `iptables-restore --noflush` for a node whose pods are not known yet: none can send or receive anything."""
    hooks = [f"-A {hook} -j {_ROOT}" for hook in _HOOKS]
    return _input(chains(State(), Ranges(local=local)), more=hooks)


def next_input(found: Mapping[str, Sequence[str]], saved: str) -> str:
    """Input of `iptables-restore --noflush` that replaces the chains at once.

    Args:
        found: the chains, see `chains`.
        saved: output of `iptables-save` for the table.
    """
    ours = re.findall(rf"^:((?:{_FROM}|{_TO})-\S+) ", saved, re.MULTILINE)
    stale = [name for name in ours if name not in found]
    return _input({**found, **{name: [] for name in stale}}, more=[f"-X {name}" for name in stale])


def _input(found: Mapping[str, Sequence[str]], *, more: Iterable[str]) -> str:
    # A chain that is declared is made, or emptied.
    declared = [f":{name} - [0:0]" for name in found]
    rules = [f"-A {name} {rule}" for name, contents in found.items() for rule in contents]
    return "\n".join([f"*{TABLE}", *declared, *rules, *more, "COMMIT", ""])


def _allowed(
    policies: Iterable[Manifest], pod: Pod, direction: Direction, state: State, ranges: Ranges
) -> Iterator[str]:
    """Matches of the packets that a pod may send (`Egress`) or get (`Ingress`)."""
    side = "to" if direction == "Egress" else "from"
    for policy in policies:
        for rule in policy["spec"].get(direction.lower()) or []:
            for port in rule.get("ports") or [None]:
                for peer in rule.get(side) or [_anyone(port, direction)]:
                    if "ipBlock" in peer:
                        yield from _to_block(peer["ipBlock"], port, pod, direction, ranges)
                    else:
                        namespace = policy["metadata"]["namespace"]
                        others = peers(peer, namespace=namespace, pods=state.pods, namespaces=state.namespaces)
                        yield from _to_pods(others, port, pod, direction)


def _anyone(port: Mapping[str, Any] | None, direction: Direction) -> Manifest:
    """The peer that a rule without peers means: any address; but only a pod can give a name to the port that it is reached at."""
    is_named = port is not None and isinstance(port.get("port"), str)
    return _ANY_POD if is_named and direction == "Egress" else _ANYWHERE


def _to_pods(others: Iterable[Pod], port: Mapping[str, Any] | None, pod: Pod, direction: Direction) -> Iterator[str]:
    for other in sorted(others, key=_by_address):
        target, flag = (other, "-d") if direction == "Egress" else (pod, "-s")
        match = _port(port, target, "--dport")
        if match is not None:
            yield f"{flag} {other.address} {match}".strip()


def _to_block(
    block: Mapping[str, Any], port: Mapping[str, Any] | None, pod: Pod, direction: Direction, ranges: Ranges
) -> Iterator[str]:
    # For a pod's own connections: its destination before the translation of a Service.
    flag, end = ("--ctorigdst", None) if direction == "Egress" else ("--ctorigsrc", pod)
    match = _port(port, end, "--ctorigdstport" if direction == "Egress" else "--dport")
    if match is not None:
        for network, exceptions in _networks(block, ranges):
            within = [] if network.prefixlen == 0 else [f"-m conntrack {flag} {network}"]
            without = [f"-m conntrack ! {flag} {exception}" for exception in exceptions]
            yield " ".join([*within, *without, match]).strip()


def _networks(block: Mapping[str, Any], ranges: Ranges) -> Iterator[tuple[IPv4Network, list[IPv4Network]]]:
    """The block with its exceptions, and ranges in place of those in it; pods have no IPv6, so a block of it contains nothing."""
    network = ip_network(block["cidr"])
    if not isinstance(network, IPv4Network):
        return
    exceptions = [IPv4Network(one) for one in block.get("except") or []]
    yield network, exceptions
    for theirs, ours in ranges.aliases:
        is_in = theirs.subnet_of(network) and not any(theirs.subnet_of(one) for one in exceptions)
        if is_in and not ours.subnet_of(network):
            yield ours, []


def _port(port: Mapping[str, Any] | None, target: Pod | None, flag: str) -> str | None:
    """The match of a port of a policy at its target, empty for every port; None if the target has no port of that name."""
    if port is None:
        return ""
    protocol, number = port.get("protocol", "TCP"), port.get("port")
    if isinstance(number, str):
        number = target.ports.get((protocol, number)) if target else None
        if number is None:
            return None
    module = "conntrack" if flag.startswith("--ct") else protocol.lower()
    numbers = "" if number is None else f" -m {module} {flag} {number}:{port.get('endPort', number)}"
    return f"-p {protocol.lower()}{numbers}"


def _by_address(pod: Pod) -> tuple[int, ...]:
    return tuple(map(int, pod.address.split(".")))
