"""PostgreSQL as a sandbox's machine runs it: with TLS, as RDS, and with its data in the sandbox's folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.lifecycle.sandbox.services.authority import server_certificate
from infra.lifecycle.sandbox.services.facts import DATABASE_PORT, DATABASE_USER

FOLDERS = ("/var/lib/postgresql", "/dev/shm")  # noqa: S108 - the machine has its own
"""Folders that the machine needs of its own: the data's, which PostgreSQL's user can reach, and the one where a killed server would
leave its shared memory."""

_DEBIAN = Path("/usr/lib/postgresql")
_NOBODY = 65534

_SCRIPT = """
set -eu
programs=$1 given=$2 address=$3
as="setpriv --reuid={user} --regid={user} --clear-groups"
cd {home}
chown {user}:{user} .
for file in server.crt server.key pg_hba.conf password; do
  install -o {user} -g {user} -m 600 "$given/$file" .
done
if [ ! -d data ]; then
  rm -rf new
  $as "$programs/initdb" --no-sync --encoding=UTF8 --locale=C.UTF-8 --username={name} --pwfile=password --auth=scram-sha-256 new
  mv new data
fi
rm -f data/postmaster.pid
exec $as "$programs/postgres" -D data -h "$address" -p {port} -c unix_socket_directories= -c fsync=off \\
  -c ssl=on -c ssl_cert_file={home}/server.crt -c ssl_key_file={home}/server.key -c hba_file={home}/pg_hba.conf
"""
"""Run by the machine's supervisor, and so again if PostgreSQL ends; it refuses to run as root."""


def find_postgres(path: str, *, debian: Path = _DEBIAN) -> Path | None:
    """Folder of PostgreSQL's programs; Debian keeps them off the PATH.

    Args:
        path: folders to search first, as in PATH.
        debian: folder of Debian's versions.
    """
    found = shutil.which("initdb", path=path)
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(debian.glob("*/bin/initdb"), key=lambda program: int(program.parts[-3]))
    return versions[-1].parent if versions else None


def postgres_command(programs: Path, *, address: str, password: str, folder: Path, authority: Path) -> list[str]:
    """The command that runs PostgreSQL.

    Args:
        programs: see `find_postgres`.
        address: where it listens.
        password: of its superuser.
        folder: made for what the command reads.
        authority: see `authority.authority_folder`.

    Raises:
        PlatformError: openssl made no certificate.
    """
    folder.mkdir(mode=0o700)
    server_certificate(authority, address=address, certificate=folder / "server.crt", key=folder / "server.key")
    (folder / "password").write_text(f"{password}\n", encoding="utf-8")
    (folder / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n", encoding="utf-8")
    script = _SCRIPT.format(user=_NOBODY, home=FOLDERS[0], name=DATABASE_USER, port=DATABASE_PORT)
    return ["/bin/sh", "-c", script, "postgres", str(programs), str(folder), address]
