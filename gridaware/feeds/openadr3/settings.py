"""The settings of an ``openadr3`` feed: where the server is, who we are there, what is ours."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gridaware.domain.errors import ConfigError
from gridaware.feeds.http import host_of, is_loopback
from gridaware.feeds.kind import PolledSettings
from gridaware.feeds.openadr3.reading_settings import ReadingSettings
from gridaware.feeds.secrets import REFERENCE_PATTERN

__all__ = ["OpenAdr3Settings", "check_url"]

Text = Annotated[str, Field(min_length=1, max_length=128)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]


class OpenAdr3Settings(ReadingSettings, PolledSettings):
    """Settings of an OpenADR 3 client (a VEN)."""

    vtn_url: Url
    """Base URL of the server: what ``/events`` is appended to."""
    client_id: Text | None = None
    """Of OAuth2; unset = the server is asked without a token, as price servers allow."""
    client_secret: str | None = Field(default=None, pattern=REFERENCE_PATTERN, max_length=500)
    token_url: Url | None = None
    """Unset = the server is asked for it at ``/auth/server``, else ``/auth/token`` is tried."""
    scope: str | None = Field(default=None, max_length=500)
    """Asked for with the token, where the authority wants one named."""
    ca_file: str | None = Field(default=None, max_length=1000)
    """Authorities to trust in place of the system's."""
    allow_insecure_http: bool = False
    """Speak http over a network: anybody on it can then move the site's power."""
    ven_name: Text | None = None
    """Unset = ``gridaware-`` and the feed's id."""
    resource_name: Text | None = None
    """A resource of the VEN to register; its name stands in reports."""
    register_ven: bool = True
    """Keep our own objects at the server. Without them nothing is ever concluded from an event
    that is no longer listed."""
    program_ids: tuple[Text, ...] = Field(default=(), max_length=50)
    """Only these programs' events; with ``program_names``, of either."""
    program_names: tuple[Text, ...] = Field(default=(), max_length=50)
    target_type: Text = "GROUP"
    """With 3.0.1, the type under which ``targets`` are asked for."""
    callback_url: Url | None = None
    """Where the server reaches our listener: ``https://HOST/api/v1/signals/FEED``; unset = no
    webhook is asked for."""
    mqtt: bool = False
    """Hear of changes from the server's broker, where it has one; needs ``gridaware[mqtt]``."""
    report_seconds: float = Field(default=60.0, ge=1, le=3600)
    """Length of a report's interval, where an event does not say one."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.client_id is None) != (self.client_secret is None):
            raise ValueError("client_id and client_secret go together")
        return self


def check_url(url: str, *, insecure: bool) -> str:
    """``url`` without a slash at its end.

    Raises:
        ConfigError: it would carry orders or secrets over an open network in the clear, or is no
            URL (``openadr3-url``).
    """
    plain = url.startswith("http://") and (insecure or is_loopback(url))
    if not host_of(url) or not (plain or url.startswith("https://")):
        raise ConfigError("openadr3-url", "the URL is neither https nor http to this machine")
    return url.rstrip("/")
