"""gridaware: a power-grid-aware job orchestrator for GPU clusters on Ray.

The package is imported by training scripts and by the privileged node agent, so importing it
costs nothing: its public names are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridaware import train as train
    from gridaware.client import Client as Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__", "train"]


def __getattr__(name: str) -> object:
    if name == "Client":
        return import_module("gridaware.client").Client
    if name == "train":
        return import_module("gridaware.train")
    raise AttributeError(f"module 'gridaware' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
