"""The network of a sandbox's machines: a bridge in a namespace, a link from there to this machine and to every node."""

from __future__ import annotations

from collections.abc import Sequence

from infra.lifecycle.sandbox.node.addresses import Addresses
from infra.lifecycle.sandbox.node.machine import Machine, done

_BRIDGE = "nodes"


def connect_host(services: Machine, *, link: str, addresses: Addresses) -> None:
    """Make the bridge in a machine, and link it to this one.

    The link vanishes with the machine's namespace. As the bridge is not here, this machine's firewall sees none of the packets between
    nodes, and needs no rule.

    Args:
        services: the machine that gets the bridge.
        link: name of the link on this machine.
        addresses: the sandbox's addresses.

    Raises:
        PlatformError: a command of `ip` failed.
    """
    services.do("ip", "link", "set", "lo", "up")
    services.do("ip", "link", "add", _BRIDGE, "type", "bridge")
    services.do("ip", "address", "add", addresses.with_prefix(services.address), "dev", _BRIDGE)
    services.do("ip", "link", "set", _BRIDGE, "up")
    done("ip", "link", "add", link, "type", "veth", "peer", "name", "host", "netns", str(services.process))
    services.do("ip", "link", "set", "host", "master", _BRIDGE, "up")
    done("ip", "address", "add", addresses.with_prefix(addresses.host), "dev", link)
    done("ip", "link", "set", link, "up")
    # kube-proxy redirects packets to Services, for which there has to be a route first.
    services.do("ip", "route", "add", "default", "via", addresses.host)


def connect_nodes(nodes: Sequence[Machine], services: Machine, *, addresses: Addresses) -> None:
    """Link nodes to the bridge, and route the pods of each, between the nodes and from this machine.

    Raises:
        PlatformError: a command of `ip` failed.
    """
    for index, node in enumerate(nodes):
        end = f"node{index}"
        # Made where the bridge is, so that this machine never has it.
        services.do("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(node.process))
        services.do("ip", "link", "set", end, "master", _BRIDGE, "up")
        node.do("ip", "link", "set", "lo", "up")
        node.do("ip", "address", "add", addresses.with_prefix(node.address), "dev", "eth0")
        node.do("ip", "link", "set", "eth0", "up")
        node.do("ip", "route", "add", "default", "via", addresses.host)
    for index, node in enumerate(nodes):
        route = ("ip", "route", "add", str(addresses.pods(index)), "via", node.address)
        done(*route)
        for other in (services, *nodes):
            if other is not node:
                other.do(*route)
