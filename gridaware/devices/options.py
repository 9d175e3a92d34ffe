"""Options of drivers and meters: a few texts, checked before anything is opened."""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from gridaware.domain.errors import ConfigError

__all__ = ["absolute_path", "check_names", "choice", "needed", "positive", "secret_from"]

_MOST_SECRET_BYTES = 64 * 1024


def check_names(options: Mapping[str, str], known: Mapping[str, str], name: str) -> None:
    """Refuse options that ``name`` (of a driver or a meter) does not know.

    Raises:
        ConfigError: ``<name>-options``; it names the nearest known one.
    """
    for odd in sorted(options.keys() - known.keys()):
        near = get_close_matches(odd, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{name}-options", f"{name} does not know the option {odd!r}{hint}")


def needed(options: Mapping[str, str], key: str, name: str) -> str:
    """The text of an option that must be given.

    Raises:
        ConfigError: ``<name>-options``.
    """
    if not options.get(key):
        raise ConfigError(f"{name}-options", f"{name} needs the option {key!r}")
    return options[key]


def choice(options: Mapping[str, str], key: str, words: tuple[str, ...], name: str) -> str:
    """One of ``words``, the first where the option is not given.

    Raises:
        ConfigError: ``<name>-options``.
    """
    word = options.get(key, words[0])
    if word not in words:
        raise ConfigError(
            f"{name}-options", f"{name}: {key} is one of {', '.join(words)}, not {word!r}"
        )
    return word


def positive(options: Mapping[str, str], key: str, default: float, name: str) -> float:
    """A finite number above 0.

    Raises:
        ConfigError: ``<name>-options``.
    """
    text = options.get(key)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}-options", f"{name}: {key} must be above 0, not {text!r}")
    return value


def absolute_path(text: str, key: str, name: str) -> Path:
    """A path that does not depend on the working folder.

    Raises:
        ConfigError: ``<name>-options``.
    """
    if not Path(text).is_absolute():
        raise ConfigError(f"{name}-options", f"{name}: {key} must be an absolute path, not {text}")
    return Path(text)


def secret_from(path: Path, name: str) -> str:
    """The first line of a file that holds a secret; the secret is in no message.

    Raises:
        ConfigError: ``<name>-secret``: it cannot be read, or is empty.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_SECRET_BYTES)
        line = data.decode("utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
        raise ConfigError(f"{name}-secret", f"cannot read {path}: {reason}") from error
    if not line or not line.isprintable():
        raise ConfigError(f"{name}-secret", f"{path} holds no secret in its first line")
    return line
