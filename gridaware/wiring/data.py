"""Where the data files that come with gridaware are: curves, policies, examples."""

from pathlib import Path
from typing import Literal

from gridaware.domain.errors import ConfigError

__all__ = ["data_path"]

_PACKAGE = Path(__file__).resolve().parent.parent


def data_path(name: Literal["configs", "policies", "examples"]) -> Path:
    """The folder ``name``: inside an installed wheel, or beside the package in a checkout.

    Raises:
        ConfigError: this installation has no such folder.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigError("data-missing", f"this installation lacks its {name} folder", name=name)
