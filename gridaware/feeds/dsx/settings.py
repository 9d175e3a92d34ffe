"""Settings of a DSX Flex feed: whose targets, which power feeds, which keys."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from gridaware.feeds.dsx.jws import Signer, VerifyKey, signer_of
from gridaware.feeds.kind import FeedSettings
from gridaware.feeds.mqtt import MqttSettings
from gridaware.feeds.secrets import REFERENCE_PATTERN, read_secret

__all__ = ["DsxSettings", "PowerFeed", "verify_keys"]

_ID = r"^[^/#+\s\x00]{1,200}$"
"""Of a participant: one level of a topic."""


class PowerFeed(FeedSettings):
    """One electrical feed of the site, as its sender knows it."""

    default_kw: float = Field(gt=0, le=1e8)
    """Its limit while no target rules."""
    least_kw: float = Field(default=0.0, ge=0, le=1e8)
    most_kw: float | None = Field(default=None, gt=0, le=1e8)
    """Told to the sender with the other two; unset, it is ``default_kw``."""


class DsxSettings(MqttSettings):
    """Settings of a DSX Flex feed."""

    isv_id: str = Field(pattern=_ID)
    """Whose load targets are heard."""
    agent_id: str = Field(pattern=_ID)
    """Ours: what our statuses are published under."""
    agent_role: Literal["poweragent", "dsx-flex-agent"] = "poweragent"
    """Both are of a 1.7.0: the schema says ``dsx-flex-agent`` since it was renamed."""
    feeds: Mapping[str, PowerFeed] = Field(min_length=1, max_length=16)
    """Power feeds by their tags. The site meter stands for all of them together."""
    keys: Mapping[str, str] = Field(default_factory=dict, max_length=16)
    """``kid`` of the sender's public keys → reference of a PEM."""
    allow_unsigned: bool = False
    """Take plain data: then whoever may publish on the topic may move the site's power."""
    signing_key: str | None = Field(default=None, pattern=REFERENCE_PATTERN, max_length=500)
    """Our private key, a PEM; unset, statuses are told unsigned."""
    signing_kid: str = Field(default="gridaware", min_length=1, max_length=200)
    oldest_hours: float = Field(default=24.0, gt=0, le=240)
    """A message that was said longer ago is refused."""
    ahead_seconds: float = Field(default=30.0, ge=0, le=600)
    """How far the sender's clock may be ahead of ours."""
    status_seconds: float = Field(default=30.0, ge=1, le=3600)
    """Between statuses while nothing changes."""
    peer_agents: tuple[str, ...] = Field(default=(), max_length=16)
    """Other power agents whose breach alerts inform."""
    infra_ids: tuple[str, ...] = Field(default=(), max_length=16)
    """Infrastructure agents whose enforcement outcomes inform."""
    peer_keys: Mapping[str, str] = Field(default_factory=dict, max_length=16)
    """Keys of those; none of them may set a target."""
    password: str | None = Field(default=None, pattern=REFERENCE_PATTERN, max_length=500)
    token_url: str | None = Field(default=None, max_length=500)
    """Where an OAuth2 token is granted that is the password; the user is ``oauthtoken`` then."""
    token_client: str | None = Field(default=None, max_length=500)
    token_secret: str | None = Field(default=None, pattern=REFERENCE_PATTERN, max_length=500)
    token_scope: str = Field(default="mqtt", max_length=200)

    @model_validator(mode="after")
    def _whole(self) -> "DsxSettings":
        if bool(self.keys) == self.allow_unsigned:
            raise ValueError("name the sender's keys, or set allow_unsigned; one of the two")
        if (
            not (self.token_url is None)
            == (self.token_client is None)
            == (self.token_secret is None)
        ):
            raise ValueError("token_url, token_client and token_secret belong together")
        if self.token_url is not None and self.password is not None:
            raise ValueError("the password is the token, or password; not both")
        return self

    @property
    def source(self) -> str:
        """What the sender's messages name as their source."""
        return f"//grid/v1/isv/{self.isv_id}"

    @property
    def target_topic(self) -> str:
        """Where load targets are said."""
        return f"grid/v1/isv/{self.isv_id}/loadtarget/set"

    @property
    def status_topic(self) -> str:
        """Where we say what became of them."""
        return f"grid/v1/{self.agent_role}/{self.agent_id}/powerstate/status"

    @property
    def informing_sources(self) -> Mapping[str, str]:
        """Topic → source of those whose messages inform."""
        role = self.agent_role
        return {
            **{
                f"grid/v1/{role}/{peer}/powerbreach": f"//grid/v1/{role}/{peer}"
                for peer in self.peer_agents
            },
            **{
                f"grid/v1/infra/{infra}/powerbreach/enforcement": f"//grid/v1/infra/{infra}"
                for infra in self.infra_ids
            },
        }

    @property
    def default_watts(self) -> Mapping[str, float]:
        """By power feed."""
        return {tag: feed.default_kw * 1e3 for tag, feed in self.feeds.items()}

    def signer(self) -> Signer | None:
        """Our key.

        Raises:
            ConfigError: it cannot be read (``dsx-key``, or a code of a secret).
        """
        if self.signing_key is None:
            return None
        return signer_of(read_secret(self.signing_key), self.signing_kid, "signing_key")


def verify_keys(references: Mapping[str, str]) -> Mapping[str, VerifyKey]:
    """Public keys by ``kid``.

    Raises:
        ConfigError: one cannot be read (``dsx-key``, or a code of a secret).
    """
    return {
        kid: VerifyKey.from_pem(read_secret(reference), f"the key {kid}")
        for kid, reference in references.items()
    }
