"""What a feed must still know after a restart: ids, draws, states. One small file a feed.

A feed whose file is broken begins anew, and says so: no conclusion is drawn from what was lost.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from gridaware.domain.errors import InvalidInput, Unavailable

__all__ = ["FeedMemory"]

BYTES_AT_MOST = 1 << 20


class FeedMemory:
    """JSON values by name; any thread. Without a path it lasts as long as the process.

    Attributes:
        broken: why what was kept could not be read; empty where it could, or there was nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self.broken = ""
        if path is not None:
            self._load(path)

    def get(self, key: str) -> Any:
        """A copy of the value of ``key``; None where there is none."""
        with self._lock:
            text = self._values.get(key)
        return None if text is None else json.loads(text)

    def put(self, key: str, value: Any) -> None:
        """Keep ``value``; returns once it is on the disk. None forgets it.

        Raises:
            InvalidInput: it is no JSON, or the feed would keep more than 1 MiB
                (``feed-memory-full``).
            Unavailable: it cannot be written (``feed-memory-unwritable``); it is kept for as long
                as the process lasts.
        """
        try:
            text = None if value is None else json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput("feed-memory-not-json", f"{key}: {error}") from None
        with self._lock:
            if self._values.get(key) == text:
                return
            kept = {k: v for k, v in self._values.items() if k != key}
            if text is not None:
                kept[key] = text
            size = sum(len(k) + len(v) for k, v in kept.items())
            if size > BYTES_AT_MOST:
                raise InvalidInput(
                    "feed-memory-full", f"the feed would keep {size} bytes, more than 1 MiB"
                )
            self._values = kept
            if self._path is not None:
                self._save(self._path)

    def forget(self) -> None:
        """Lose everything, and the file."""
        with self._lock:
            self._values = {}
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                # JSON texts escape what is not ASCII, and texts within texts once more.
                body = file.read(4 * BYTES_AT_MOST)
            values = json.loads(body)
            self._values = {str(key): json.dumps(value) for key, value in values.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            self.broken = f"{path.name}: {type(error).__name__}"

    def _save(self, path: Path) -> None:
        body = "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in self._values.items()) + "}"
        beside = path.with_suffix(".new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            raise Unavailable("feed-memory-unwritable", f"{path.name}: {error.strerror}") from None
