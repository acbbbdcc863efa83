"""The command line: `python -m infra.lifecycle COMMAND`.

Each command imports what does it when it is called: Pulumi, boto3 and matplotlib each take longer than most commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.lifecycle.options import (
    ChangeOptions,
    EnvironmentOptions,
    GraphOptions,
    ImageOptions,
    OutputsOptions,
    PricesOptions,
    ReleaseCheckOptions,
    ReleaseLockOptions,
    SandboxOptions,
    StalenessOptions,
)
from infra.spec.command_line import CommandLine, NoOptions

COMMANDS = CommandLine(
    "python -m infra.lifecycle",
    "Look at environments of the stack, bring them up, and keep their release.",
    variables={
        "RTP_ENGINES": "folder of the programs that `engines` builds",
        "KUBEBUILDER_ASSETS": "folder of etcd and kube-apiserver that `sandbox` starts instead",
        "KUBERAY_OPERATOR": "KubeRay's operator that `sandbox` starts instead",
        "KUEUE_CONTROLLER": "Kueue's controller that `sandbox` starts instead",
        "TORCH_VERSION": "build of torch for `image --variant cpu`",
        "TORCH_INDEX": "package index that has it",
        "AWS_PROFILE": "credentials, like every variable of the AWS SDK",
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is one of `ExitStatus`, or pulumi's."""
    return COMMANDS.main(arguments)


@COMMANDS.command("look at an environment")
def graph(options: GraphOptions) -> int:
    """Print every resource of an environment, and draw its architecture."""
    from infra.lifecycle.commands import graph as commands

    return commands.graph(options)


@COMMANDS.command("look at an environment")
def cost(options: EnvironmentOptions) -> int:
    """Print what an environment costs by the hour, idle and full."""
    from infra.lifecycle.commands import report as commands

    return commands.cost(options)


@COMMANDS.command("look at an environment")
def outputs(options: OutputsOptions) -> int:
    """Check a stack's outputs against the contract and this release."""
    from infra.lifecycle.commands import report as commands

    return commands.outputs(options)


@COMMANDS.command("bring an environment up")
def preflight(options: EnvironmentOptions) -> int:
    """Check account, quotas, offers and reservations."""
    from infra.lifecycle.commands import stack as commands

    return commands.preflight(options)


@COMMANDS.command("bring an environment up")
def preview(options: ChangeOptions) -> int:
    """Show what `up` would change, after the preflight."""
    from infra.lifecycle.commands import stack as commands

    return commands.preview(options)


@COMMANDS.command("bring an environment up")
def up(options: ChangeOptions) -> int:
    """Bring an environment up, after the preflight."""
    from infra.lifecycle.commands import stack as commands

    return commands.up(options)


@COMMANDS.command("bring an environment up")
def destroy(options: ChangeOptions) -> int:
    """Destroy an environment."""
    from infra.lifecycle.commands import stack as commands

    return commands.destroy(options)


@COMMANDS.command("keep the release")
def release_check(options: ReleaseCheckOptions) -> int:
    """Check that the versions of the release fit together."""
    from infra.lifecycle.commands import report as commands

    return commands.release_check(options)


@COMMANDS.command("keep the release")
def staleness(options: StalenessOptions) -> int:
    """List entries that were not compared with their source lately."""
    from infra.lifecycle.commands import report as commands

    return commands.stale(options)


@COMMANDS.command("keep the release")
def release_lock(options: ReleaseLockOptions) -> int:
    """Look up what the release leaves open; fails while anything is."""
    from infra.lifecycle.commands import refresh as commands

    return commands.release_lock(options)


@COMMANDS.command("keep the release")
def charts(options: EnvironmentOptions) -> int:
    """Fetch and verify the charts of an environment."""
    from infra.lifecycle.commands import charts as commands

    return commands.fetch(options)


@COMMANDS.command("keep the release")
def prices(options: PricesOptions) -> int:
    """Bring the price table up to date; fails where a price is not found."""
    from infra.lifecycle.commands import refresh as commands

    return commands.prices(options)


@COMMANDS.command("keep the release")
def image(options: ImageOptions) -> int:
    """Build our own images, and push them."""
    from infra.lifecycle.commands import image as commands

    return commands.image(options)


@COMMANDS.command("Kubernetes on this machine")
def engines(options: NoOptions) -> int:
    """Build the programs of the sandbox and of the tests."""
    from infra.lifecycle.commands import engines as commands

    return commands.engines(options)


@COMMANDS.command("Kubernetes on this machine")
def sandbox(options: SandboxOptions) -> int:
    """Start Kubernetes here, with an environment's fake nodes."""
    from infra.lifecycle.commands import sandbox as commands

    return commands.up(options)


@COMMANDS.command("Kubernetes on this machine")
def sandbox_down(options: NoOptions) -> int:
    """End the sandbox, its processes and its files."""
    from infra.lifecycle.commands import sandbox as commands

    return commands.down(options)
