"""`python -m alert_webhook`: write the URL in a Secrets Manager secret to a file.

Exit status: 0 done, 2 the secret holds no URL, otherwise an unexpected error. The URL is never printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import boto3


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m alert_webhook", description="Write a webhook's URL to a file.")
    made.add_argument("--secret", required=True, help="name of the secret")
    made.add_argument("--region", required=True, help="AWS region of the secret")
    made.add_argument("--file", required=True, type=Path, help="output file")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; `arguments` is the command line, None for the process's own."""
    options = parser().parse_args(arguments)
    client = boto3.client("secretsmanager", region_name=options.region)
    url = client.get_secret_value(SecretId=options.secret)["SecretString"].strip()
    address = urlsplit(url)
    if address.scheme != "https" or not address.hostname:
        print(
            f"error: secret {options.secret} holds no https:// URL; set its value to the webhook's URL", file=sys.stderr
        )
        return 2
    options.file.touch(mode=0o600)
    options.file.write_text(url, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
