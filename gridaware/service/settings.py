"""What the web process must be told."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gridaware.domain.catalogue import Catalogue, SiteProgramme

__all__ = ["WebSettings"]


def _empty() -> Catalogue:
    return Catalogue({})


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where the store and control are, and the bounds of what is served."""

    store: str
    """SQLite path or database URL; opened for reading only."""
    control_socket: Path
    """The UNIX socket on which control takes commands."""
    signals_url: str
    """Control's own listener, such as ``http://127.0.0.1:8781``."""
    api_key_file: Path
    """Hashes of the API keys; see :mod:`gridaware.service.keys`."""
    host: str = "127.0.0.1"
    port: int = 8780
    command_seconds: float = 15.0
    """How long control may take to answer a command."""
    alive_seconds: float = 10.0
    """A controller without a sign of life for this long is called gone."""
    stream_poll_seconds: float = 0.5
    """How often a stream looks for changes."""
    streams_at_most: int = 64
    body_bytes_at_most: int = 1 << 20
    programmes: tuple[SiteProgramme, ...] = ()
    """The site's own."""
    catalogue: Callable[[], Catalogue] = _empty
    """Read when somebody asks for it first."""
