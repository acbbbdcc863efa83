"""IAM statements to read datasets in S3. A bucket of another account has to allow it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.aws.iam import Statement


def read_sources(buckets: Sequence[str]) -> tuple[Statement, ...]:
    """Read whole buckets, and nothing else; for the Jobs that copy datasets."""
    arns = [f"arn:aws:s3:::{name}" for name in buckets]
    objects = [f"{arn}/*" for arn in arns]
    return (
        Statement(sid="ListSources", actions=("s3:ListBucket",), resources=arns),
        Statement(sid="ReadSources", actions=("s3:GetObject",), resources=objects),
        _keys("KeysOfSources", arns, objects, {}),
    )


def read_datasets(folders: Mapping[str, Sequence[str]]) -> Iterator[Statement]:
    """Read BUCKET or BUCKET/FOLDER from the pods of a team, by team.

    The teams share a role. Pod Identity sets the pod's namespace, which is the team's, as a session tag that no pod can choose
    (EKS user guide, "Grant Pods access to AWS resources based on tags").
    """
    listings = 0
    for number, (team, wanted) in enumerate(item for item in folders.items() if item[1]):
        of_the_team = {"StringEquals": {"aws:PrincipalTag/kubernetes-namespace": team}}
        pairs = [(f"arn:aws:s3:::{bucket}", prefix) for bucket, _, prefix in (one.partition("/") for one in wanted)]
        for arn, prefix in pairs:
            limit = {"StringLike": {"s3:prefix": [f"{prefix}/*"]}} if prefix else {}
            yield Statement(
                sid=f"ListDatasets{listings}",
                actions=("s3:ListBucket",),
                resources=(arn,),
                condition={**of_the_team, **limit},
            )
            listings += 1
        objects = [f"arn:aws:s3:::{one}/*" for one in wanted]
        yield Statement(
            sid=f"ReadDatasets{number}", actions=("s3:GetObject",), resources=objects, condition=of_the_team
        )
        buckets = list(dict.fromkeys(arn for arn, _ in pairs))
        yield _keys(f"KeysOfDatasets{number}", buckets, objects, of_the_team)


def _keys(
    sid: str, buckets: Sequence[str], objects: Sequence[str], condition: Mapping[str, Mapping[str, str]]
) -> Statement:
    """Decrypt with the keys of these objects, whatever account they are in.

    S3 gives KMS the ARN of the bucket or object as encryption context (S3 user guide, "Encryption context").
    """
    of_objects = {"kms:ViaService": "s3.*.amazonaws.com", "kms:EncryptionContext:aws:s3:arn": [*buckets, *objects]}
    return Statement(
        sid=sid,
        actions=("kms:Decrypt",),
        resources=("arn:aws:kms:*:*:key/*",),
        condition={**condition, "StringLike": of_objects},
    )
