"""The settings of an ``openadr2b`` feed: where the server is, who we are there, whom we trust."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gridaware.domain.errors import ConfigError
from gridaware.feeds.http import host_of, is_loopback
from gridaware.feeds.kind import PolledSettings
from gridaware.feeds.openadr2.reading_settings import ReadingSettings

__all__ = ["OpenAdr2Settings", "check_url"]

Text = Annotated[str, Field(min_length=1, max_length=128)]
File = Annotated[str, Field(min_length=1, max_length=1000)]


class OpenAdr2Settings(ReadingSettings, PolledSettings):
    """Settings of an OpenADR 2.0b client (a VEN) that polls over HTTP."""

    poll_seconds: float = Field(default=10.0, ge=0.2, le=3600)
    """Time between polls; a server that asks for fewer is asked less often."""
    vtn_url: str = Field(min_length=1, max_length=2000)
    """What the names of services are appended to: ``https://HOST/OpenADR2/Simple/2.0b``."""
    ven_name: Text | None = None
    """Unset = ``gridaware-`` and the feed's id."""
    ven_id: Text | None = None
    """Where the server has given us one outside of OpenADR."""
    vtn_id: Text | None = None
    """Of the server; unset = the one that it registers us under."""
    ca_file: File | None = None
    """Authorities to trust in place of the system's."""
    tls_certificate_file: File | None = None
    """Ours, shown to a server that asks for one."""
    tls_key_file: File | None = None
    allow_insecure_http: bool = False
    """Speak http over a network: anybody on it can then move the site's power."""
    signing_certificate_file: File | None = None
    """With it our messages are signed; it is not the certificate of TLS."""
    signing_key_file: File | None = None
    verify_signatures: bool = False
    """Take only messages that are signed by ``vtn_fingerprint``, which implies it."""
    vtn_fingerprint: str | None = Field(default=None, max_length=200)
    """Of the certificate that the server signs with, agreed on outside of OpenADR: the last ten
    bytes of its SHA-256, or all of them."""
    list_seconds: float = Field(default=600.0, ge=1, le=86400)
    """Time between requests for the whole list of events."""
    reports: bool = True
    """Offer telemetry: power, energy and status."""
    resource_id: Text | None = None
    """Names the site in reports; unset = the name of the VEN."""
    supply_hertz: float = Field(default=60.0, ge=1, le=1000)
    """Of the site's supply; the schema wants it beside every power."""
    supply_volts: float = Field(default=480.0, ge=1, le=1e6)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        if (self.signing_certificate_file is None) != (self.signing_key_file is None):
            raise ValueError("signing_certificate_file and signing_key_file go together")
        return self


def check_url(url: str, *, insecure: bool) -> str:
    """``url`` without a slash at its end.

    Raises:
        ConfigError: it would carry orders over an open network in the clear, or is no URL
            (``openadr2-url``).
    """
    plain = url.startswith("http://") and (insecure or is_loopback(url))
    if not host_of(url) or not (plain or url.startswith("https://")):
        raise ConfigError("openadr2-url", "the URL is neither https nor http to this machine")
    return url.rstrip("/")
