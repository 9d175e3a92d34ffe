"""How many files, and so how many streams, this process may have open."""

import logging
import resource

__all__ = ["raise_open_files"]

_log = logging.getLogger(__name__)

_ENOUGH = 65_536
_SPARE = 256
"""For everything that is no agent's stream."""
_LITTLE = 4096


def raise_open_files() -> int:
    """Allow as many open files as the system lets this process have; how many those are.

    A process that is held to few says so: beyond that, agents are not heard.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY and soft < _LITTLE:
        _log.warning(
            "this process may open %d files, so it hears about %d agents: raise the hard limit "
            "(`ulimit -Hn`, LimitNOFILE= in its systemd unit)",
            soft,
            max(soft - _SPARE, 0),
        )
    return soft
