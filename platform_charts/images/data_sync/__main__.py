"""`python -m data_sync SOURCE DESTINATION`: copy a folder, of a bucket or of a file system, to the datasets, verified.

Exit status: 0 every file is there and verified; 1 something failed, and a new run continues; 2 invalid input; 3 this source cannot be
copied to this destination; 130 stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .errors import SyncError, WrongInputError
from .folder import FolderClient
from .source import parse_destination, parse_source
from .state import locked_state
from .sync import Sync, SyncOptions


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m data_sync", description=__doc__)
    made.add_argument("source", help="s3://BUCKET/FOLDER, or the absolute path of a folder")
    made.add_argument("destination", help="datasets/NAME")
    made.add_argument("--root", type=Path, default=Path("/mnt/datasets"), help="where the datasets are mounted")
    made.add_argument("--workers", type=int, default=16, help="threads (default: 16)")
    made.add_argument("--delete", action="store_true", help="delete files copied earlier that the source no longer has")
    made.add_argument("--accept-unverified", action="store_true", help="accept objects without a known checksum")
    made.add_argument("--limit", type=int, help="bytes that the root may hold (default: what its disk has free)")
    made.add_argument("--reuse", action="store_true", help="keep a complete copy without reading the source again")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except SyncError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except (ClientError, BotoCoreError, OSError) as error:
        print(f"error: {error}; a new run continues", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    is_folder = options.source.startswith("/")
    bucket, prefix = ("", "") if is_folder else parse_source(options.source)
    destination = parse_destination(options.destination)
    if not options.root.is_dir():
        raise WrongInputError(f"no datasets are mounted at {options.root}")
    with locked_state(options.root, destination) as state:
        sync = Sync(
            FolderClient(Path(options.source)) if is_folder else _client(options.workers),
            SyncOptions(
                source=options.source if is_folder else f"s3://{bucket}/{prefix}",
                bucket=bucket,
                prefix=prefix,
                root=options.root,
                destination=destination,
                workers=options.workers,
                deletes=options.delete,
                accepts_unverified=options.accept_unverified,
                reads_back=is_folder,
                limit=options.limit,
                reuses=options.reuse,
            ),
            state,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sync.stop())
        sync.run()


def _client(workers: int) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
    config = Config(
        retries={"mode": "standard", "max_attempts": 10},
        max_pool_connections=workers + 1,
        connect_timeout=10,
        read_timeout=60,
        # Checked by `checksum`, which also says what was checked.
        response_checksum_validation="when_required",
    )
    return boto3.client("s3", config=config)


if __name__ == "__main__":
    sys.exit(main())
