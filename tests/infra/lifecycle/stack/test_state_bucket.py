"""The bucket for Pulumi's state, against moto's S3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.lifecycle.account.aws import Client
from infra.lifecycle.cli import main
from infra.lifecycle.stack.state_bucket import OLD_VERSION_DAYS, StateBucket, ensure
from infra.spec.errors import RefusedError
from infra.spec.settings import load_environment

ACCOUNT = "123456789012"
STATE = ".pulumi/stacks/dev.json"
BUCKET = StateBucket(name="rtp-dev-state-123456789012", region="us-east-1", account=ACCOUNT)


def s3(region: str = "us-east-1") -> Client:
    return boto3.client("s3", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")


@pytest.fixture
def client() -> Iterator[Client]:
    with mock_aws():
        yield s3()


def put_state(client: Client) -> None:
    """Put a state into the bucket; without its policy, because moto ignores conditions and would deny the request."""
    policy = client.get_bucket_policy(Bucket=BUCKET.name)["Policy"]
    client.delete_bucket_policy(Bucket=BUCKET.name)
    client.put_object(Bucket=BUCKET.name, Key=STATE, Body=b"{}")
    client.put_bucket_policy(Bucket=BUCKET.name, Policy=policy)


def test_a_new_bucket_is_versioned_encrypted_private_and_tls_only(client: Client) -> None:
    assert ensure(BUCKET, client)
    name = BUCKET.name
    assert client.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    (rule,) = client.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert all(client.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"].values())
    (statement,) = json.loads(client.get_bucket_policy(Bucket=name)["Policy"])["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    (lifecycle,) = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert lifecycle["NoncurrentVersionExpiration"]["NoncurrentDays"] == OLD_VERSION_DAYS
    assert "Expiration" not in lifecycle, "the current state stays"


def test_a_second_run_changes_nothing_and_an_interrupted_one_is_completed(client: Client) -> None:
    client.create_bucket(Bucket=BUCKET.name)
    assert not ensure(BUCKET, client)
    assert client.get_bucket_versioning(Bucket=BUCKET.name)["Status"] == "Enabled"
    put_state(client)
    assert not ensure(BUCKET, client)
    (version,) = client.list_object_versions(Bucket=BUCKET.name)["Versions"]
    assert (version["Key"], version["IsLatest"]) == (STATE, True)


def test_a_bucket_in_another_region_than_the_default_is_created_there() -> None:
    with mock_aws():
        there = StateBucket(name="rtp-eu-state", region="eu-west-1", account=ACCOUNT)
        assert ensure(there, s3("eu-west-1"))
        assert s3().get_bucket_location(Bucket=there.name)["LocationConstraint"] == "eu-west-1"


def _open(client: Client) -> None:
    on = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls"), True)
    off = dict.fromkeys(("BlockPublicPolicy", "RestrictPublicBuckets"), False)
    client.put_public_access_block(Bucket=BUCKET.name, PublicAccessBlockConfiguration={**on, **off})


def test_a_bucket_with_content_and_a_wrong_setting_is_refused_by_its_name() -> None:
    suspended, acls = {"Status": "Suspended"}, {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    named = {"Bucket": BUCKET.name}
    spoils: tuple[tuple[Callable[[Client], object], str], ...] = (
        (lambda client: client.delete_bucket_policy(Bucket=BUCKET.name), "must deny requests without TLS"),
        (
            lambda one: one.put_bucket_versioning(**named, VersioningConfiguration=suspended),
            "versioning is Suspended, must be Enabled",
        ),
        (_open, "public access: BlockPublicPolicy, RestrictPublicBuckets must be on"),
        (
            lambda one: one.put_bucket_ownership_controls(**named, OwnershipControls=acls),
            "object ownership must be BucketOwnerEnforced",
        ),
        (lambda client: client.delete_bucket_lifecycle(Bucket=BUCKET.name), "no lifecycle rule expires old versions"),
        (lambda client: client.delete_bucket_encryption(Bucket=BUCKET.name), "encryption is off"),
    )
    for spoil, message in spoils:
        with mock_aws():
            client = s3()
            ensure(BUCKET, client)
            put_state(client)
            spoil(client)
            with pytest.raises(RefusedError, match="has content and 1 wrong setting") as refused:
                ensure(BUCKET, client)
        assert message in str(refused.value)


def test_a_bucket_of_another_account_or_in_another_region_is_refused() -> None:
    owner = {"Bucket": BUCKET.name, "ExpectedBucketOwner": ACCOUNT}
    with Stubber(client := s3()) as stub:
        stub.add_client_error("head_bucket", "403", http_status_code=403, expected_params=owner)
        with pytest.raises(RefusedError, match=f"is not account {ACCOUNT}'s"):
            ensure(BUCKET, client)
        headers = {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-1"}}
        stub.add_response("head_bucket", {"ResponseMetadata": headers}, owner)
        with pytest.raises(RefusedError, match=r"is in eu-west-1, aws.region is us-east-1"):
            ensure(BUCKET, client)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


@pytest.mark.usefixtures("credentials")
def test_the_command_can_be_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    account = load_environment("dev").aws.allowed_accounts[0]
    monkeypatch.setenv("MOTO_ACCOUNT_ID", account)
    with mock_aws():
        assert main(["state-bucket", "--env", "dev"]) == 0
        assert f"rtp-dev-state-{account}: created" in (printed := capsys.readouterr().out)
        assert f"pulumi login 's3://rtp-dev-state-{account}?region=us-east-1'" in printed
        assert main(["state-bucket", "--env", "dev"]) == 0
        assert f"rtp-dev-state-{account}: exists" in capsys.readouterr().out


@pytest.mark.usefixtures("credentials")
def test_the_command_refuses_an_account_that_may_not_hold_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with mock_aws():
        assert main(["state-bucket", "--env", "dev"]) == 3
        assert s3().list_buckets()["Buckets"] == []
    assert f"AWS account {ACCOUNT} may not hold environment dev" in capsys.readouterr().err
