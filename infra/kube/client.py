"""Clients of API servers from kubeconfigs, which leave no copies of certificates and keys behind."""

from __future__ import annotations

import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3.util.ssl_ import create_urllib3_context

from infra.spec.errors import SettingsError

_REMEDY = "pass a valid one with --kubeconfig FILE, or set KUBECONFIG"

_LOADING = threading.Lock()
"""The official client reuses the file of an equal certificate, which another thread may be about to remove."""


def client_of(file: Path) -> ApiClient:
    """A client of the cluster of a kubeconfig's current context.

    Raises:
        SettingsError: the file cannot be read, or its current context does not exist.
    """
    try:
        return _client(lambda **given: config.load_kube_config(str(file), **given))
    except (config.ConfigException, OSError) as error:
        raise SettingsError(f"kubeconfig {file}: {error}", remedy=_REMEDY) from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        # The official client reads what it expects of a kubeconfig without checking it.
        raise SettingsError(f"kubeconfig {file}: not a kubeconfig", remedy=_REMEDY) from error


def client_from(document: Mapping[str, Any]) -> ApiClient:
    """A client of the cluster of a kubeconfig that is in no file."""
    return _client(lambda **given: config.load_kube_config_from_dict(document, **given))


def authority_of(connection: ApiClient) -> bytes:
    """The CA certificates with which a connection verifies its server, as PEM; empty if they are the system's."""
    settings = connection.configuration
    if settings.ca_cert_data:
        return str(settings.ca_cert_data).encode()
    return Path(settings.ssl_ca_cert).read_bytes() if settings.ssl_ca_cert else b""


def _client(load: Callable[..., None]) -> ApiClient:
    """A client without temporary files.

    The official client writes the certificates and keys in a kubeconfig to files, and removes them when the program exits. If it is
    killed, they stay. So they are read here, and removed before the first connection.

    Args:
        load: fills in the Configuration `client_configuration`, and writes files to the folder `temp_file_path`.
    """
    settings = Configuration()
    # One immediate retry, for a kept-alive connection that the server has closed; callers own longer retries.
    settings.retries = 1
    context = None
    with _LOADING, tempfile.TemporaryDirectory(prefix="rtp-kubeconfig-") as folder:
        load(client_configuration=settings, temp_file_path=folder)
        if _is_in(folder, settings.ssl_ca_cert):
            # Only ASCII is accepted; comments between the certificates may have more.
            settings.ca_cert_data = Path(settings.ssl_ca_cert).read_text(encoding="ascii", errors="ignore")
            settings.ssl_ca_cert = None
        if _is_in(folder, settings.cert_file) or _is_in(folder, settings.key_file):
            context = _client_certificate(settings)
    if settings.refresh_api_key_hook is not None:
        settings.refresh_api_key_hook = _without_files(settings.refresh_api_key_hook)
    made = ApiClient(settings)
    if context is not None:
        made.rest_client.pool_manager.connection_pool_kw["ssl_context"] = context
    return made


def _without_files(refresh: Callable[[Configuration], None]) -> Callable[[Configuration], None]:
    """The official client's hook, which refreshes the token, and would also set itself and the files anew, which are gone."""

    def refreshed(settings: Configuration) -> None:
        files = settings.ssl_ca_cert, settings.cert_file, settings.key_file
        refresh(settings)
        settings.ssl_ca_cert, settings.cert_file, settings.key_file = files
        settings.refresh_api_key_hook = refreshed

    return refreshed


def _is_in(folder: str, file: str | None) -> bool:
    return file is not None and Path(file).parent == Path(folder)


def _client_certificate(settings: Configuration) -> ssl.SSLContext:
    """A context that has the client's certificate and key, which are then no longer in the settings; Python reads them from files only."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE)
    if not settings.ca_cert_data and not settings.ssl_ca_cert:
        context.load_default_certs()
    context.load_cert_chain(settings.cert_file, settings.key_file)
    settings.cert_file = settings.key_file = None
    return context
