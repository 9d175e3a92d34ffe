"""How a meter on the network is trusted, and how it is told who asks: options they share."""

import base64
import ssl
from collections.abc import Mapping
from typing import Final

from gridaware.devices.options import absolute_path, needed, secret_from
from gridaware.domain.errors import ConfigError

__all__ = ["OPTIONS", "authorization", "tls_context"]

OPTIONS: Final[Mapping[str, str]] = {
    "user": "who asks, by HTTP Basic authentication; without it nobody is named",
    "password_file": "absolute path of a file with the password of `user`",
    "token_file": "absolute path of a file with a bearer token, instead of a user",
    "ca_file": "absolute path of the CA that its certificate is checked against; the system's "
    "where unset",
}


def tls_context(options: Mapping[str, str], name: str) -> ssl.SSLContext:
    """Checks the other side's certificate, by ``ca_file`` or the system's CAs.

    Raises:
        ConfigError: ``<name>-options``: the file cannot be read, or holds no certificate.
    """
    given = options.get("ca_file")
    path = None if given is None else absolute_path(given, "ca_file", name)
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{name}-options", f"{name}: ca_file: {error}") from error


def authorization(options: Mapping[str, str], name: str) -> dict[str, str]:
    """The header that names the user, or carries the token; none where neither is given.

    Raises:
        ConfigError: ``<name>-options`` or ``<name>-secret``.
    """
    if "token_file" in options and "user" in options:
        raise ConfigError(f"{name}-options", f"{name}: give user or token_file, not both")
    if "token_file" in options:
        path = absolute_path(options["token_file"], "token_file", name)
        return {"Authorization": f"Bearer {secret_from(path, name)}"}
    if "user" not in options:
        return {}
    path = absolute_path(needed(options, "password_file", name), "password_file", name)
    pair = f"{options['user']}:{secret_from(path, name)}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}
