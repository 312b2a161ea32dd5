"""Where requests may go: https anywhere that was allowed, plain http to this machine alone."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from electra_cli.errors import InputError

_KEY = "collaborate.base_url"


@dataclass(frozen=True)
class Address:
    """A checked endpoint."""

    base_url: str
    host: str
    is_loopback: bool


def check_address(base_url: str, *, may_upload: bool) -> Address:
    """The address of an OpenAI-compatible endpoint.

    InputError for anything but https (http on loopback), for one that carries credentials or a query, and for
    one that is not this machine unless `may_upload`.
    """
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{_KEY} is no address: {error}", key=_KEY) from error
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # Not repeated: what stands there may be a secret.
        raise InputError(
            f"{_KEY} holds a user, a query or a fragment, where secrets hide",
            key=_KEY,
            hint="only scheme, host, port and path; the key comes from the environment",
        )
    is_loopback = _is_loopback(host)
    if parts.scheme not in ("https", "http") or not host:
        raise InputError(
            f"{_KEY} = {base_url} is no http address", key=_KEY, hint="https://api.openai.com/v1"
        )
    if parts.scheme == "http" and not is_loopback:
        raise InputError(
            f"{_KEY} = {base_url}: plain http would send texts and key readable by anyone on the way",
            key=_KEY,
            hint="use https; http is for servers on this machine (127.0.0.1)",
        )
    if not is_loopback and not may_upload:
        raise InputError(
            f"{host} is not this machine: texts and encoder answers would be sent there",
            key=_KEY,
            hint="--allow-upload permits it; electra collaborate --dry-run shows how much that is",
        )
    return Address(base_url.rstrip("/"), host, is_loopback)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
