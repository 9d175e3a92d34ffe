"""The settings of an ``ieee2030`` feed: the server, who we are to it, and what was agreed."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gridaware.domain.errors import ConfigError
from gridaware.feeds.http import host_of, is_loopback
from gridaware.feeds.ieee2030.modes import PERCENTS, Rules
from gridaware.feeds.kind import FeedSettings, PolledSettings

__all__ = ["Ieee2030Settings", "ReadingSettings", "check_url", "rules_of"]

File = Annotated[str, Field(min_length=1, max_length=1000)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
LimitMode = Literal[
    "opModImpLimW",
    "opModLoadLimW",
    "opModMaxLimWAbsorb",
    "opModMaxLimPctWAbsorb",
    "opModMaxLimW",
    "opModFixedW",
    "opModTargetW",
]


class ReadingSettings(FeedSettings):
    """How controls are read."""

    limit_by: LimitMode = "opModImpLimW"
    """The mode that limits the site; every other one only informs. By their definition
    ``opModMaxLimW``, ``opModFixedW`` and ``opModTargetW`` speak of generation: take one of them
    where the server's owner says that it means this load."""
    rated_kw: float | None = Field(default=None, gt=0, le=1e8)
    """What 100 % of the modes that are shares is; unset = they only inform."""
    disconnects: bool = False
    """Whether ``opModEnergize`` and ``opModConnect``, where false, ask for 0 kW."""
    device_category: str | None = Field(default=None, pattern=r"^[0-9A-Fa-f]{1,8}$")
    """What we are, as the hexadecimal bits of DeviceCategoryType (00000200: a managed commercial or
    industrial load); controls for other categories only inform. Unset = every control is for us."""
    neutral_kw: float | None = Field(default=None, gt=0, le=1e8)
    """A default control at or above it asks for nothing: the connection's capacity, say."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.limit_by in PERCENTS and self.rated_kw is None:
            raise ValueError(f"limit_by {self.limit_by} needs rated_kw")
        return self


class Ieee2030Settings(ReadingSettings, PolledSettings):
    """Settings of an IEEE 2030.5 client."""

    server_url: Url
    """Of the DeviceCapability resource, such as https://utility.example/dcap."""
    certificate_file: File
    """PEM; the device's own certificate first. Our names at the server (LFDI, SFDI) follow from
    it."""
    key_file: File
    """PEM, without a password."""
    ca_file: File | None = None
    """Authorities to trust in place of the system's: 2030.5 has manufacturers' roots of its own."""
    server_lfdi: str | None = Field(default=None, pattern=r"^[0-9A-Fa-f]{40}$")
    """Of the server's certificate; compared in place of its host name. The certificates of 2030.5
    itself carry none, and its roots sign every device's: who signed it alone says too little."""
    ccm8: bool = False
    """Offer, after better ones, the cipher suite that 2030.5-2018 makes mandatory
    (ECDHE-ECDSA-AES128-CCM8): today's TLS libraries leave it out."""
    poll_seconds: float = Field(default=30.0, ge=1, le=3600)
    slowest_poll_seconds: float = Field(default=300.0, ge=1, le=3600)
    """A server may ask for slower polls, up to this; a notification always has us ask at once."""
    callback_url: Url | None = None
    """Where the server reaches our listener: ``https://HOST/api/v1/signals/FEED``; unset = no
    notifications are subscribed to. They wake a poll and nothing else."""
    telemetry_seconds: float | None = Field(default=None, ge=10, le=3600)
    """Mirror the site's power to the server, averaged over so long; unset = it is not."""


def rules_of(settings: ReadingSettings) -> Rules:
    """The rules that ``settings`` say."""
    category = settings.device_category
    return Rules(
        limit_by=settings.limit_by,
        rated_watts=None if settings.rated_kw is None else settings.rated_kw * 1e3,
        disconnects=settings.disconnects,
        device_category=None if category is None else int(category, 16),
        neutral_watts=None if settings.neutral_kw is None else settings.neutral_kw * 1e3,
    )


def check_url(url: str) -> str:
    """``url``, if orders may come from it.

    Raises:
        ConfigError: it is neither https nor http to this machine (``ieee2030-url``).
    """
    plain = url.startswith("http://") and is_loopback(url)
    if not host_of(url) or not (plain or url.startswith("https://")):
        raise ConfigError("ieee2030-url", "the URL is neither https nor http to this machine")
    return url
