"""The command line: `python -m infra.lifecycle COMMAND`.

Each command imports its implementation when it runs: importing Pulumi, boto3 or matplotlib takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.lifecycle.options import (
    CapacityOptions,
    ChangeOptions,
    ClusterTestOptions,
    DeployerPolicyOptions,
    DownOptions,
    DriftOptions,
    EnginesOptions,
    EnvironmentOptions,
    GraphOptions,
    HoldOptions,
    ImageOptions,
    LeaksOptions,
    OutputsOptions,
    PricesOptions,
    PromoteOptions,
    QueuesOptions,
    ReapOptions,
    ReleaseCheckOptions,
    ReleaseLockOptions,
    SandboxOptions,
    StalenessOptions,
    TestEnvironmentOptions,
    TunnelOptions,
    UpgradeOptions,
    UpOptions,
)
from infra.spec.command_line import CommandLine, NoOptions
from infra.spec.variables.inventory import described

COMMANDS = CommandLine(
    "python -m infra.lifecycle",
    "Inspect and deploy the stack's environments, and maintain their release.",
    variables=described(
        "RTP_ENGINES",
        "RTP_REGISTRY",
        "KUBEBUILDER_ASSETS",
        "KUBERAY_OPERATOR",
        "KUEUE_CONTROLLER",
        "TORCH_VERSION",
        "TORCH_INDEX",
        "RTP_STACK_OUTPUTS",
        "KUBECONFIG",
        "RTP_API_SERVER",
        "PIP_INDEX_URL",
        "AWS_PROFILE",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns an `ExitStatus`, or pulumi's exit status."""
    return COMMANDS.main(arguments)


@COMMANDS.command("inspect an environment")
def graph(options: GraphOptions) -> int:
    """List every resource of an environment, and draw its architecture."""
    from infra.lifecycle.commands import graph as commands

    return commands.graph(options)


@COMMANDS.command("inspect an environment")
def cost(options: EnvironmentOptions) -> int:
    """Print the hourly cost of an environment, idle and at full size."""
    from infra.lifecycle.commands import report as commands

    return commands.cost(options)


@COMMANDS.command("inspect an environment")
def capacity(options: CapacityOptions) -> int:
    """Find GPU capacity, or show the calendar of what is reserved."""
    from infra.lifecycle.commands import capacity as commands

    return commands.capacity(options)


@COMMANDS.command("inspect an environment")
def outputs(options: OutputsOptions) -> int:
    """Check a stack's outputs against their contract and this release."""
    from infra.lifecycle.commands import report as commands

    return commands.outputs(options)


@COMMANDS.command("deploy an environment")
def deployer_policy(options: DeployerPolicyOptions) -> int:
    """Write the IAM policies that a role needs to deploy an environment."""
    from infra.lifecycle.commands import deployer as commands

    return commands.deployer_policy(options)


@COMMANDS.command("deploy an environment")
def state_bucket(options: EnvironmentOptions) -> int:
    """Create or check the S3 bucket for Pulumi's state."""
    from infra.lifecycle.commands import deployer as commands

    return commands.state_bucket(options)


@COMMANDS.command("deploy an environment")
def preflight(options: EnvironmentOptions) -> int:
    """Check account, quotas, instance offerings and reservations."""
    from infra.lifecycle.commands import stack as commands

    return commands.preflight(options)


@COMMANDS.command("deploy an environment")
def preview(options: ChangeOptions) -> int:
    """Run the preflight, then `pulumi preview`."""
    from infra.lifecycle.commands import stack as commands

    return commands.preview(options)


@COMMANDS.command("deploy an environment")
def up(options: UpOptions) -> int:
    """Run the preflight, push missing images, then `pulumi up`."""
    from infra.lifecycle.commands import stack as commands

    return commands.up(options)


@COMMANDS.command("deploy an environment")
def upgrade(options: UpgradeOptions) -> int:
    """Upgrade a stack to this release, step by step."""
    from infra.lifecycle.commands import upgrade as commands

    return commands.upgrade(options)


@COMMANDS.command("deploy an environment")
def drift(options: DriftOptions) -> int:
    """Report how account and cluster differ from what the stack made, and take that back."""
    from infra.lifecycle.commands import drift as commands

    return commands.drift(options)


@COMMANDS.command("deploy an environment")
def tunnel(options: TunnelOptions) -> int:
    """Forward a port of this machine to a private API server."""
    from infra.lifecycle.commands import stack as commands

    return commands.tunnel(options)


@COMMANDS.command("deploy an environment")
def hold(options: HoldOptions) -> int:
    """Hold the queues, so that no job starts, and wait until none runs."""
    from infra.lifecycle.commands import rollout as commands

    return commands.hold(options)


@COMMANDS.command("deploy an environment")
def release_queues(options: QueuesOptions) -> int:
    """Release the queues that `hold` or an interrupted `up` has left held."""
    from infra.lifecycle.commands import rollout as commands

    return commands.release(options)


@COMMANDS.command("deploy an environment")
def test_environment(options: TestEnvironmentOptions) -> int:
    """Write the settings of a disposable test cluster."""
    from infra.lifecycle.commands import environment as commands

    return commands.test_environment(options)


@COMMANDS.command("deploy an environment")
def cluster_test(options: ClusterTestOptions) -> int:
    """Make a throw-away cluster, test it, and take it down."""
    from infra.lifecycle.commands import cluster_test as commands

    return commands.cluster_test(options)


@COMMANDS.command("deploy an environment")
def down(options: DownOptions) -> int:
    """Empty the cluster, run `pulumi destroy`, and list what is left."""
    from infra.lifecycle.commands import down as commands

    return commands.down(options)


@COMMANDS.command("deploy an environment")
def destroy(options: DownOptions) -> int:
    """The same as `down`."""
    return down(options)


@COMMANDS.command("deploy an environment")
def leaks(options: LeaksOptions) -> int:
    """List what an environment has left in its account; fails if anything is left."""
    from infra.lifecycle.commands import leftovers as commands

    return commands.leaks(options)


@COMMANDS.command("deploy an environment")
def reap(options: ReapOptions) -> int:
    """Remove the test clusters of an account that have expired, found by their tags."""
    from infra.lifecycle.commands import reaper as commands

    return commands.reap(options)


@COMMANDS.command("maintain the release")
def release_check(options: ReleaseCheckOptions) -> int:
    """Check that the versions of the release fit together."""
    from infra.lifecycle.commands import report as commands

    return commands.release_check(options)


@COMMANDS.command("maintain the release")
def staleness(options: StalenessOptions) -> int:
    """List release entries not checked against their source recently."""
    from infra.lifecycle.commands import report as commands

    return commands.stale(options)


@COMMANDS.command("maintain the release")
def release_lock(options: ReleaseLockOptions) -> int:
    """Look up and write unresolved versions and hashes; fails if any remain."""
    from infra.lifecycle.commands import refresh as commands

    return commands.release_lock(options)


@COMMANDS.command("maintain the release")
def charts(options: EnvironmentOptions) -> int:
    """Download and verify the charts of an environment."""
    from infra.lifecycle.commands import charts as commands

    return commands.fetch(options)


@COMMANDS.command("maintain the release")
def prices(options: PricesOptions) -> int:
    """Update the price table; fails if a price is not found."""
    from infra.lifecycle.commands import refresh as commands

    return commands.prices(options)


@COMMANDS.command("maintain the release")
def image(options: ImageOptions) -> int:
    """Build the platform's own images, or one with your packages, and push them."""
    if options.from_ is not None:
        from infra.lifecycle.commands import derived_image

        return derived_image.derived_image(options)
    from infra.lifecycle.commands import image as commands

    return commands.image(options)


@COMMANDS.command("maintain the release")
def promote(options: PromoteOptions) -> int:
    """Copy the platform's own images by digest from one environment's registry to another's."""
    from infra.lifecycle.commands import promote as commands

    return commands.promote(options)


@COMMANDS.command("Kubernetes on this machine")
def engines(options: EnginesOptions) -> int:
    """Build the programs that the sandbox and the tests run."""
    from infra.lifecycle.commands import engines as commands

    return commands.engines(options)


@COMMANDS.command("Kubernetes on this machine")
def sandbox(options: SandboxOptions) -> int:
    """Start Kubernetes on this machine, with fake and real nodes of an environment."""
    from infra.lifecycle.commands import sandbox as commands

    return commands.up(options)


@COMMANDS.command("Kubernetes on this machine")
def sandbox_down(options: NoOptions) -> int:
    """Stop the sandbox and delete its files."""
    from infra.lifecycle.commands import sandbox as commands

    return commands.down(options)
