"""Small valid environments, and a helper to change them."""

from __future__ import annotations

import copy
from typing import Any

Tree = dict[str, Any]

SHIPPED = ("dev", "staging", "prod")
"""Names of the environments the project ships."""


def dev_sections() -> Tree:
    """Sections of a valid dev environment with two GPU groups and one team."""
    return copy.deepcopy(_DEV)


def prod_sections() -> Tree:
    return changed(
        dev_sections(),
        {
            "environment.kind": "prod",
            "network.nat": "per_az",
            "database": {"multi_az": True},
            "monitoring": {"alert_email": "ops@example.com"},
            "budget": {"monthly_usd": 10, "email": "ops@example.com"},
        },
    )


def changed(tree: Tree, changes: dict[str, Any]) -> Tree:
    """The tree with values at dotted paths replaced; `...` removes the key."""
    for path, value in changes.items():
        *inner, last = path.split(".")
        node: Any = tree
        for part in inner:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if value is ...:
            del node[last]
        elif isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    return tree


_DEV: Tree = {
    "environment": {"name": "dev", "kind": "dev", "owner": "ops@example.com"},
    "aws": {"region": "us-east-1", "allowed_accounts": ["111122223333"]},
    "network": {"cidr": "10.16.0.0/16", "availability_zones": ["us-east-1a", "us-east-1b", "us-east-1c"]},
    "cluster": {"admin_roles": ["arn:aws:iam::111122223333:role/admin"]},
    "gpu_groups": [
        {"name": "t4", "instance_type": "g4dn.xlarge", "max_size": 4, "capacity": {"kind": "spot"}},
        {
            "name": "h100",
            "instance_type": "p5.48xlarge",
            "max_size": 2,
            "availability_zones": ["us-east-1a"],
            "efa": True,
            "placement": "cluster",
        },
    ],
    "teams": [{"name": "research", "gpus": {"t4": 4, "h100": 16}}],
}

SINGLE_SIGN_ON: Tree = {
    "domain": "ml.example.com",
    "certificate_arn": "arn:aws:acm:us-east-1:111122223333:certificate/01234567-89ab-cdef-0123-456789abcdef",
    "client_cidrs": ["10.16.0.0/16"],
    "issuer": "https://idp.example.com",
    "authorization_endpoint": "https://idp.example.com/authorize",
    "token_endpoint": "https://idp.example.com/token",
    "user_info_endpoint": "https://idp.example.com/userinfo",
    "client_id": "ray-train-platform",
    "groups": {"research": ["ml-research"]},
}
"""The section `single_sign_on` for this environment."""
