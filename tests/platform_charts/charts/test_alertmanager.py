"""Alertmanager's configuration, checked by amtool and run by a real Alertmanager."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.spec.release import load_release
from platform_charts.charts.alertmanager import (
    NOBODY,
    PEOPLE,
    Alerting,
    alerting_of,
    alertmanager_config,
    webhook_pod_fields,
)
from platform_charts.images.alert_webhook.__main__ import main
from tests.engines.alertmanager import Alertmanager, alertmanager, complaints
from tests.engines.s3 import REGION, S3Api
from tests.engines.servers import Handler, http_server
from tests.infra.aws.graphs import graph, settings_of
from tests.waiting import wait_until

pytestmark = pytest.mark.monitoring

BOTH = Alerting(
    environment="rtp-dev",
    region=REGION,
    topic_arn="arn:aws:sns:us-east-1:123456789012:rtp-dev-alerts",
    webhook_secret="alerts/webhook",
    image="registry.example/mlflow:1",
)
RECEIVERS = {
    "both": BOTH,
    "mail": replace(BOTH, webhook_secret=None),
    "webhook": replace(BOTH, topic_arn=None),
    "nobody": replace(BOTH, topic_arn=None, webhook_secret=None),
}
SECONDS = 30.0


def test_amtool_accepts_every_configuration_and_people_are_a_receiver_only_if_configured(tmp_path: Path) -> None:
    for name, alerting in RECEIVERS.items():
        config = alertmanager_config(alerting)
        assert complaints(config, tmp_path) == "", name
        receivers = {one["name"] for one in config["receivers"]}
        assert receivers == ({NOBODY} if name == "nobody" else {NOBODY, PEOPLE})
        assert config["route"]["receiver"] in receivers


def test_without_an_email_address_there_is_no_topic_and_without_a_webhook_no_init_container() -> None:
    alerting = alerting_of(settings_of("dev"), load_release(), topic_arn="arn", registry="r")
    assert (alerting.topic_arn, alerting.webhook_secret) == (None, None)
    assert graph("dev").of_type("aws:sns/topic:Topic") == ()
    assert webhook_pod_fields(RECEIVERS["mail"]) == {}


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """URL of a webhook, and the notifications it has received."""
    found: list[dict[str, Any]] = []

    class Hook(Handler):
        def do_POST(self) -> None:  # noqa: N802
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(200)

    with http_server(Hook) as url:
        yield f"{url}/hook", found


@pytest.fixture
def mailed(s3_api: S3Api) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """ARN of a topic in moto, and the messages that a subscribed queue has received."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    sns = boto3.client("sns", endpoint_url=s3_api.endpoint, region_name=REGION, **keys)
    sqs = boto3.client("sqs", endpoint_url=s3_api.endpoint, region_name=REGION, **keys)
    topic, queue = sns.create_topic(Name="alerts")["TopicArn"], sqs.create_queue(QueueName="alerts")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    messages: list[str] = []

    def received() -> list[str]:
        got = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        messages.extend(json.loads(one["Body"])["Message"] for one in got)
        return messages

    yield topic, received
    sqs.delete_queue(QueueUrl=queue)
    sns.delete_topic(TopicArn=topic)


@pytest.fixture
def running(
    posted: tuple[str, list[dict[str, Any]]], mailed: tuple[str, Callable[[], list[str]]], s3_api: S3Api, tmp_path: Path
) -> Iterator[Alertmanager]:
    """Alertmanager with both receivers and short intervals."""
    config: Any = copy.deepcopy(alertmanager_config(replace(BOTH, topic_arn=mailed[0])))
    url = tmp_path / "url"
    url.write_text(posted[0])
    (people,) = [one for one in config["receivers"] if one["name"] == PEOPLE]
    people["webhook_configs"][0]["url_file"] = str(url)
    people["sns_configs"][0]["api_url"] = s3_api.endpoint
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "200ms", "group_interval": "1s"}
    with alertmanager(config, tmp_path) as server:
        yield server


def names(posted: list[dict[str, Any]]) -> set[str]:
    """Alert names in all notifications."""
    return {alert["labels"]["alertname"] for one in posted for alert in one["alerts"]}


def test_only_warning_and_critical_alerts_are_sent_by_webhook_and_email(
    running: Alertmanager, posted: tuple[str, list[dict[str, Any]]], mailed: tuple[str, Callable[[], list[str]]]
) -> None:
    running.fire(alertname="Watchdog", severity="none")
    running.fire(alertname="InfoInhibitor", severity="none", namespace="a")
    running.fire(alertname="Curious", severity="info", namespace="a")
    running.fire(alertname="DiskFull", severity="critical", namespace="a")
    running.fire(alertname="DiskFull", severity="warning", namespace="a")
    running.fire(alertname="Slow", severity="warning", namespace="b")
    wait_until(lambda: names(posted[1]) >= {"DiskFull", "Slow"} and len(mailed[1]()) >= 2, seconds=SECONDS)
    assert names(posted[1]) == {"DiskFull", "Slow"}
    severities = {(a["labels"]["alertname"], a["labels"]["severity"]) for one in posted[1] for a in one["alerts"]}
    assert severities == {("DiskFull", "critical"), ("Slow", "warning")}
    text = "\n".join(mailed[1]())
    assert "DiskFull" in text
    assert "Slow" in text
    assert "Watchdog" not in text


def test_a_critical_alert_inhibits_the_warning_about_the_same_claim_only(running: Alertmanager) -> None:
    """Also after the alert about another claim is over; InfoInhibitor is not needed, as nobody gets `info`."""
    alert = {"alertname": "KubePersistentVolumeFillingUp", "namespace": "a"}
    for claim in ("full", "fuller"):
        running.fire(severity="critical", persistentvolumeclaim=claim, **alert)
    for claim in ("full", "fuller", "filling"):
        running.fire(severity="warning", persistentvolumeclaim=claim, **alert)
    wait_until(lambda: running.inhibited() == {"full": True, "fuller": True, "filling": False}, seconds=SECONDS)
    for over, left in (("full", "fuller"), ("fuller", "full")):
        running.resolve(severity="critical", persistentvolumeclaim=over, **alert)
        wait_until(
            lambda over=over, left=left: running.inhibited() == {over: False, left: True, "filling": False},  # type: ignore[misc]
            seconds=SECONDS,
        )
        running.fire(severity="critical", persistentvolumeclaim=over, **alert)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager, mocked by moto."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield boto3.client("secretsmanager", region_name=REGION)


def run_init_container(file: Path) -> int:
    """Run the init container's program with its arguments and another output file."""
    (container,) = webhook_pod_fields(BOTH)["initContainers"]
    assert container["command"] == ["python", "-m", "alert_webhook"]
    return main([*container["args"][:-1], f"--file={file}"])


def test_the_init_container_writes_the_url_to_a_private_file(aws: Any, tmp_path: Path) -> None:  # noqa: ANN401
    aws.create_secret(Name="alerts/webhook", SecretString="https://hooks.example/T0/B0/secret\n")
    assert run_init_container(tmp_path / "url") == 0
    assert (tmp_path / "url").read_text() == "https://hooks.example/T0/B0/secret"
    assert (tmp_path / "url").stat().st_mode & 0o077 == 0


def test_a_secret_without_a_url_is_named_but_its_value_is_not_printed(
    aws: Any,  # noqa: ANN401
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    aws.create_secret(Name="alerts/webhook", SecretString="first")
    for text in ("http://hooks.example/T0", "T0/B0", '{"url": "https://hooks.example/T0"}'):
        aws.put_secret_value(SecretId="alerts/webhook", SecretString=text)
        assert run_init_container(tmp_path / "url") == 2
        printed = capsys.readouterr().err
        assert "secret alerts/webhook holds no https:// URL" in printed
        assert text not in printed


def test_alertmanagers_role_may_publish_to_its_topic() -> None:
    recording = graph("prod")
    topic = recording.find("aws:sns/topic:Topic", "alerts").properties
    chart = recording.find("kubernetes:helm.sh/v3:Release", "kube-prometheus-stack").properties
    (people,) = [one for one in chart["values"]["alertmanager"]["config"]["receivers"] if one["name"] == PEOPLE]
    arn = people["sns_configs"][0]["topic_arn"]
    assert arn.endswith(f":{topic['name']}")
    policies = [one.properties["policy"] for one in recording.of_type("aws:iam/rolePolicy:RolePolicy")]
    allowed = [s for text in policies for s in json.loads(text)["Statement"] if s["Action"] == ["sns:Publish"]]
    assert [one["Resource"] for one in allowed] in ([arn], [[arn]])
