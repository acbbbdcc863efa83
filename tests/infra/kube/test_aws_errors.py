"""What a failed request to AWS says to do: get permissions, repeat, or look at the network."""

from __future__ import annotations

from botocore.exceptions import ClientError, EndpointConnectionError

from infra.kube.aws_errors import aws_refusal


def refused(code: str, status: int) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "DescribeCluster"
    )


def test_the_remedy_is_for_what_has_failed() -> None:
    for error, remedy in (
        (refused("AccessDeniedException", 403), "grant eks:DescribeCluster"),
        (refused("500", 500), "repeat the command later"),
        (refused("ServerException", 503), "repeat the command later"),
        (refused("ThrottlingException", 400), "repeat the command later"),
        (
            EndpointConnectionError(endpoint_url="https://eks"),
            "check the network and its proxy (HTTPS_PROXY), then retry",
        ),
    ):
        found = aws_refusal("cannot read the cluster", error, remedy="grant eks:DescribeCluster")
        assert found.remedy == remedy, error
        assert str(error) in str(found), error
