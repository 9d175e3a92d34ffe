"""Whom an event is for: names as strings (3.1), or lists of typed values (3.0.1)."""

from collections.abc import Mapping

from gridaware.domain.errors import InvalidInput

__all__ = ["concerns", "read_targets"]

TARGETS_AT_MOST = 1000


def read_targets(value: object) -> frozenset[str] | None:
    """The names in ``targets``; None = it is for everybody.

    An entry that is neither a name nor a typed list names nobody.

    Raises:
        InvalidInput: it is no list at all (``targets-malformed``), or one of more than 1 000.
    """
    if value is None or value == []:
        return None
    if not isinstance(value, list) or len(value) > TARGETS_AT_MOST:
        raise InvalidInput("targets-malformed", "targets is not a list of at most 1000 names")
    names: set[str] = set()
    for entry in value:
        if isinstance(entry, str):
            names.add(entry)
        elif isinstance(entry, Mapping) and isinstance(entry.get("values"), list):
            names.update(each for each in entry["values"] if isinstance(each, str))
    return frozenset(names)


def concerns(named: frozenset[str] | None, ours: frozenset[str]) -> bool:
    """Whether an event for ``named`` is for us: one of ``ours`` is among them.

    A feed that was told no names of its own believes the server, which shows a client only what is
    meant for it; one that was told some does not (servers were seen that show everything).
    """
    return named is None or not ours or bool(named & ours)
