"""Where the API is, for the commands that talk to it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gridaware.client import Client

__all__ = ["Target", "connect"]


@dataclass(frozen=True, slots=True)
class Target:
    """What the options before the command say."""

    url: str | None = None
    api_key: str | None = None
    debug: bool = False

    @property
    def as_options(self) -> str:
        """The options that reach the same API again, for commands that we suggest."""
        return f" --url {self.url}" if self.url else ""


def connect(context: typer.Context) -> "Client":
    """The SDK, pointed at where ``--url`` or ``GRIDAWARE_URL`` says."""
    from gridaware.client import Client

    target = target_of(context)
    return Client(target.url, target.api_key)


def target_of(context: typer.Context) -> Target:
    """What the root command was told."""
    target = context.find_root().obj
    return target if isinstance(target, Target) else Target()
