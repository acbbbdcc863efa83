"""Which namespaces reach each other and which AWS resources they use, from the references in a recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.preview.graph.contents import namespace_of
from infra.preview.recording import Recording, Resource

_NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
_INGRESS = "kubernetes:networking.k8s.io/v1:Ingress"
_POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
_ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_APP_LABEL = "app.kubernetes.io/name"
_DNS = 53


@dataclass(frozen=True, order=True)
class Edge:
    """A connection. A namespace has its name, anything else its URN."""

    source: str
    target: str


@dataclass(frozen=True, order=True)
class Bundle:
    """Sources that all have the same targets, and are drawn as one line with branches."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]


def between_namespaces(recording: Recording) -> frozenset[Edge]:
    """What network policies let each namespace reach in others, except DNS, which all of them may ask."""
    return frozenset(edge for policy in recording.of_type(_NETWORK_POLICY) for edge in _allowed(policy))


def callers(recording: Recording) -> Mapping[str, str]:
    """The programs that reach other namespaces, by namespace; none for one in which any pod may."""
    found: dict[str, set[str]] = {}
    for policy in recording.of_type(_NETWORK_POLICY):
        if any(_allowed(policy)):
            selected = policy.properties["spec"]["podSelector"].get("matchLabels", {})
            found.setdefault(namespace_of(policy), set()).add(selected.get(_APP_LABEL, ""))
    return {namespace: ", ".join(sorted(names)) for namespace, names in found.items() if "" not in names}


def _allowed(policy: Resource) -> Iterator[Edge]:
    """The edges of a network policy."""
    own = namespace_of(policy)
    for rule in policy.properties["spec"].get("egress") or ():
        if {port["port"] for port in rule.get("ports") or ()} != {_DNS}:
            yield from (Edge(own, other) for other in _namespaces(rule.get("to") or ()) if other != own)


def _namespaces(peers: Iterable[dict[str, dict[str, dict[str, str]]]]) -> Iterator[str]:
    """Namespaces that the peers of a rule name."""
    for peer in peers:
        name = peer.get("namespaceSelector", {}).get("matchLabels", {}).get(_NAMESPACE_LABEL)
        if name is not None:
            yield name


def to_aws(recording: Recording, targets: Collection[str]) -> frozenset[Edge]:
    """What the objects of a namespace refer to, and what the roles of its service accounts may use.

    Args:
        recording: the environment's graph.
        targets: URNs of the AWS resources that are drawn.
    """
    objects = [one for one in recording.resources if one.type.startswith("kubernetes:")]
    direct = {Edge(namespace_of(one), urn) for one in objects for urn in _references(one)}
    granted = {
        Edge(identity.properties["namespace"], urn)
        for identity in recording.of_type(_POD_IDENTITY)
        for policy in recording.of_type(_ROLE_POLICY)
        if set(identity.property_dependencies["roleArn"]) & set(policy.property_dependencies["role"])
        for urn in _references(policy)
    }
    return frozenset(edge for edge in direct | granted if edge.source and edge.target in targets)


def from_load_balancers(recording: Recording) -> frozenset[Edge]:
    """From each Ingress, whose load balancer is outside the cluster, to the namespace that it leads to."""
    return frozenset(Edge(one.urn, namespace_of(one)) for one in recording.of_type(_INGRESS))


def ends(edges: Iterable[Edge]) -> frozenset[str]:
    """All that the edges connect."""
    return frozenset(end for edge in edges for end in (edge.source, edge.target))


def _references(resource: Resource) -> Iterator[str]:
    for urns in resource.property_dependencies.values():
        yield from urns


def bundled(edges: Iterable[Edge]) -> tuple[Bundle, ...]:
    """The edges as bundles, each edge in one of them."""
    targets: dict[str, set[str]] = {}
    for edge in edges:
        targets.setdefault(edge.source, set()).add(edge.target)
    sources: dict[tuple[str, ...], list[str]] = {}
    for source in sorted(targets):
        sources.setdefault(tuple(sorted(targets[source])), []).append(source)
    return tuple(sorted(Bundle(tuple(found), reached) for reached, found in sources.items()))
