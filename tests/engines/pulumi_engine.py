"""The real Pulumi engine with a local backend, a double of the AWS provider, moto, and a real API server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import requests
import yaml
from moto.eks import urls as eks_urls
from moto.servicequotas.models import ServiceQuotasBackend

from infra.lifecycle.sandbox.crds import copied_crds
from infra.spec.cluster_names import KUEUE_NAMESPACE
from infra.spec.manifest import Manifest, annotated
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from tests.engines.aws_provider import AwsProvider, aws_provider
from tests.engines.aws_resources import Place
from tests.engines.kubernetes import engine_environment
from tests.engines.pulumi_checkout import Checkout, chart_archives, resolved_addon
from tests.engines.pulumi_cluster import platform_cluster
from tests.engines.report_table import ran, skipped
from tests.engines.tcp_proxy import Proxy
from tests.engines.terraform import moto_server
from tests.infra.lifecycle.leftovers.moto_gaps import filled
from tests.platform_charts.charts.archives import charts

NAME = "Pulumi engine"
_PLUGIN = "pulumi-resource-kubernetes"


def find_engine() -> None:
    """Skip the test without the engine, or without its Kubernetes provider."""
    if shutil.which("pulumi") is None:
        skipped(NAME, "no pulumi on PATH", "install the Pulumi CLI")
    listed = subprocess.run(["pulumi", "plugin", "ls", "--json"], capture_output=True, text=True, check=False).stdout
    if shutil.which(_PLUGIN) is None and '"kubernetes"' not in listed:
        skipped(NAME, "no plugin kubernetes", "pulumi plugin install resource kubernetes")
    ran(NAME)


@dataclass(frozen=True)
class Engine:
    """An environment in an empty account.

    Attributes:
        checkout: the checkout that the commands run in.
        provider: the double of AWS.
        api_server: what the commands reach the API server through; cut, the cluster does not answer.
        session: an administrator of the account.
        place: the account, and the API server that clusters have.
        variables: environment variables of the commands.
    """

    checkout: Checkout
    provider: AwsProvider
    api_server: Proxy
    session: boto3.Session
    place: Place
    variables: Mapping[str, str]

    def lifecycle(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m infra.lifecycle`."""
        return self._run(self._python, "-m", "infra.lifecycle", *arguments)

    @contextmanager
    def started(self, *arguments: str, output: Path) -> Iterator[subprocess.Popen[str]]:
        """Run `python -m infra.lifecycle` as the leader of a process group, which ends with the context."""
        # A shell starts background jobs, and so perhaps these tests, with SIGINT ignored.
        program = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        program += "; runpy.run_module('infra.lifecycle', run_name='__main__')"
        with (
            output.open("wb") as said,
            subprocess.Popen(
                [self._python, "-c", program, *arguments], **{**self._options, "stdout": said}, start_new_session=True
            ) as process,
        ):
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def pulumi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `pulumi`."""
        return self._run("pulumi", *arguments)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user types it."""
        return self._run("bash", "-c", command)

    @property
    def _python(self) -> str:
        return str(self.checkout.root / ".venv/bin/python")

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "cwd": self.checkout.root,
            "env": dict(self.variables),
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
        }

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, **self._options, check=False)


@contextmanager
def engine(folder: Path, settings: StackSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An empty account with credentials of an administrator, a checkout, and the API server that its cluster will have."""
    find_engine()
    account, region = settings.aws.allowed_accounts[0], settings.aws.region
    monkeypatch.setattr(ServiceQuotasBackend, "get_service_quota", _sufficient)
    monkeypatch.setitem(eks_urls.url_paths, "{0}/addons/supported-versions$", _addon_versions)
    archives = chart_archives()
    has_real_charts = archives != charts(load_release(), take_time=True)
    with ExitStack() as stack:
        stack.enter_context(filled())
        crds = () if has_real_charts else map(_of_charts, copied_crds(engine_environment()))
        plane = stack.enter_context(platform_cluster(folder / "plane", settings, crds=crds))
        [found] = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))["clusters"]
        address, authority = urlsplit(found["cluster"]["server"]), found["cluster"]["certificate-authority-data"]
        api_server = stack.enter_context(Proxy(int(address.port or 443)))
        server = f"https://{address.hostname}:{api_server.port}"
        endpoint = stack.enter_context(moto_server())
        requests.post(f"{endpoint}/moto-api/reset", timeout=30).raise_for_status()
        session = _administrator(endpoint, settings)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        place = Place(account=account, region=region, server=server, authority=authority)
        provider, port = stack.enter_context(aws_provider(place, session))
        programs = _programs(folder / "programs", plane.kubeconfig)
        (folder / "backend").mkdir()
        variables = {
            **os.environ,
            **_variables(session),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": region,
            "HOME": str(folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PULUMI_BACKEND_URL": (folder / "backend").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_DEBUG_PROVIDERS": f"aws:{port}",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # moto's clusters have an endpoint of moto's own; this is the API server that the double gives the stack.
            "RTP_API_SERVER": server,
        }
        yield Engine(Checkout(folder / "checkout", archives), provider, api_server, session, place, variables)


def _of_charts(crd: Manifest) -> Manifest:
    """A CRD that the fake charts lack: Kueue's as if its chart had made it, which an existing cluster is asked for."""
    if crd["spec"]["group"] != "kueue.x-k8s.io":
        return crd
    named = annotated(crd, "meta.helm.sh/release-name", "kueue")
    return annotated(named, "meta.helm.sh/release-namespace", KUEUE_NAMESPACE)


def _sufficient(_: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
    """Quotas, which moto lacks for EC2."""
    return {"ServiceCode": service_code, "QuotaCode": quota_code, "QuotaName": "Running vCPUs", "Value": 100_000.0}


def _addon_versions(request: Any, _url: str, _headers: object) -> tuple[int, dict[str, str], str]:  # noqa: ANN401 - moto's request
    """EKS's list of an add-on's versions, which moto lacks: that of the checkout is compatible with every minor."""
    asked = parse_qs(urlsplit(request.url).query)
    (name,), (minor,) = asked["addonName"], asked["kubernetesVersion"]
    version = resolved_addon(name, minor)
    fits = [{"clusterVersion": minor, "defaultVersion": True}]
    addons = [{"addonName": name, "addonVersions": [{"addonVersion": version, "compatibilities": fits}]}]
    return 200, {"Content-Type": "application/json"}, json.dumps({"addons": addons})


def _administrator(endpoint: str, settings: StackSettings) -> boto3.Session:
    """A session of the environment's first administrator."""
    sts = boto3.client(
        "sts", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    role = settings.cluster.admin_roles[0]
    answer: dict[str, Any] = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    return boto3.Session(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"], settings.aws.region)


def _variables(session: boto3.Session) -> dict[str, str]:
    """The credentials of a session, as the commands get them."""
    found = session.get_credentials()
    return {
        "AWS_ACCESS_KEY_ID": found.access_key,
        "AWS_SECRET_ACCESS_KEY": found.secret_key,
        "AWS_SESSION_TOKEN": found.token,
    }


def _programs(folder: Path, kubeconfig: Path) -> Path:
    """A folder with doubles of `aws eks get-token` and of `docker`."""
    folder.mkdir()
    [user] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"]
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": user["user"],
    }
    scripts = {
        "aws": f"#!/bin/sh\necho '{json.dumps(credential)}'\n",
        "docker": f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_docker.py")} "$@"\n',
        "session-manager-plugin": "#!/bin/sh\n",
    }
    for name, text in scripts.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder
