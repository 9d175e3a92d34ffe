"""Mutual TLS of the agent stream, with the standard library alone.

Both ends trust one private CA (``gridaware init``) and nothing else. Certificates of agents may
only act as clients and the controller's only as a server, so no node can pose as the controller.
"""

import ssl
from pathlib import Path

from gridaware.domain.errors import ConfigError

__all__ = ["RELAY_UNIT", "agent_context", "controller_context", "is_relay", "peer_name"]

RELAY_UNIT = "gridaware relay"
"""Organizational unit in the certificate of a relay, and of nothing else."""


def agent_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """What an agent dials with: it shows its certificate and verifies the controller's name.

    Raises:
        ConfigError: a file is missing, unreadable or no such thing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _loaded(context, ca, certificate, key)


def controller_context(ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """What the controller listens with: nobody gets in without a certificate of our CA.

    Raises:
        ConfigError: a file is missing, unreadable or no such thing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # A ticket is good for nothing once its maker was restarted, which is when nodes come back.
    context.num_tickets = 0
    return _loaded(context, ca, certificate, key)


def peer_name(certificate: object) -> str | None:
    """Common name of a verified peer certificate as :mod:`ssl` gives it, or None."""
    return _subject(certificate, "commonName")


def is_relay(certificate: object) -> bool:
    """Whether a verified peer certificate, as :mod:`ssl` gives it, is a relay's."""
    return _subject(certificate, "organizationalUnitName") == RELAY_UNIT


def _subject(certificate: object, attribute: str) -> str | None:
    if not isinstance(certificate, dict):
        return None
    for group in certificate.get("subject", ()):
        for name, value in group:
            if name == attribute:
                return str(value)
    return None


def _loaded(context: ssl.SSLContext, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(ca)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "tls-files", f"cannot load {ca}, {certificate} and {key}: {error}"
        ) from error
    return context
