"""Opens plain files alone: a pipe, a folder or a device in a file's place must not hang a feed."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_plain"]


def open_plain(path: Path) -> BinaryIO:
    """Open ``path`` for reading.

    Raises:
        OSError: it cannot be opened; with ``EINVAL`` where it is no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file")
    return os.fdopen(descriptor, "rb")
