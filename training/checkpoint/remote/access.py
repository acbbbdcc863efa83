"""What is asked of a bucket before anything starts: that it is there, is the right one, and can be listed, read and written."""

from __future__ import annotations

import secrets

from training.checkpoint.remote.bucket import RemoteStoreError, RunBucket
from training.checkpoint.remote.location import RemoteLocation
from training.checkpoint.remote.newest import refuse_another_run
from training.checkpoint.remote.tier import RemoteTier
from training.config.schema import TrainingSettings
from training.errors import PreflightError

_DENIED = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled"})
_WRONG_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
)
_ELSEWHERE = frozenset(
    {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_RIGHTS = "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload"


def try_bucket(location: RemoteLocation, settings: TrainingSettings) -> bool:
    """Try a run's bucket; whether it has checkpoints of the run.

    Args:
        location: the run's part of the bucket.
        settings: of the run; checkpoints in the bucket must be of the same.

    Raises:
        PreflightError: there is no such bucket, it belongs to another account, or listing, writing or removing is denied; or there are
            no credentials, or no answer.
        ResumeMismatchError: the bucket has a checkpoint of another run under the same name.
    """
    try:
        bucket = RunBucket(location)
        checkpoints = RemoteTier(bucket).checkpoints()
        probe = f"write-test-{secrets.token_hex(8)}"
        bucket.write(probe, b"")
        bucket.remove(probe)
    except RemoteStoreError as error:
        raise refusal(location, error) from error
    if checkpoints and settings.checkpoint.resume == "never":
        raise PreflightError(
            f"checkpoint.resume=never, but {location.url} has a checkpoint of step {checkpoints[-1].step}",
            remedy="choose another --name or checkpoint.remote, or set checkpoint.resume=auto to resume from it",
        )
    if checkpoints:
        newest = checkpoints[-1].manifest
        saved = newest.identity
        # What else the identity has needs the dataset; a rank compares it.
        pairs = [
            ("model", saved.model, settings.model.name),
            ("objective", saved.objective, settings.objective.name),
            ("global_batch", saved.global_batch, settings.loop.global_batch),
            ("seed", saved.seed, settings.run.seed),
        ]
        differing = [f"{name}: saved {have}, wanted {want}" for name, have, want in pairs if have != want]
        refuse_another_run(location.url, newest, differing)
    return bool(checkpoints)


def refusal(location: RemoteLocation, error: RemoteStoreError) -> PreflightError:
    """What a store's refusal means for the settings, and the remedy."""
    setting = f"checkpoint.remote={location.setting}"
    if error.code == "NoSuchBucket":
        return PreflightError(
            f"{setting}: there is no bucket {location.bucket}",
            remedy="correct the name or create the bucket; checkpoint.remote=null keeps checkpoints in the run's folder only",
        )
    if error.code in _DENIED:
        owner = "" if location.owner is None else f", or it does not belong to account {location.owner}"
        return PreflightError(
            f"{setting}: {error}: the bucket denies access to these credentials{owner}",
            remedy=f"allow {_RIGHTS} below {location.folder}/, or correct the bucket"
            + ("" if location.owner is None else " or checkpoint.remote_owner"),
        )
    if error.code in _ELSEWHERE:
        return PreflightError(
            f"{setting}: the bucket is in another region: {error.reason}",
            remedy="set AWS_REGION to the region of the bucket",
        )
    if error.code in _WRONG_KEYS or "credentials" in error.reason.lower():
        return PreflightError(
            f"{setting}: no valid AWS credentials: {error.reason}",
            remedy="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a job has those of its service account",
        )
    return PreflightError(
        f"{setting}: {error}",
        remedy="check the network, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL; checkpoint.remote=null keeps checkpoints in the run's folder "
        "only",
    )
