"""Rigs of every feed kind, found by looking: a kind adds one by adding a module here."""

from importlib import import_module
from pkgutil import iter_modules

from feed_rigs.base import NOW, SECRET, Rig, Said

__all__ = ["NOW", "RIGS", "SECRET", "Rig", "Said"]


def _rigs() -> dict[str, type[Rig]]:
    for module in iter_modules(__path__):
        import_module(f"feed_rigs.{module.name}")
    waiting, found = [Rig], {}
    while waiting:
        rig = waiting.pop()
        waiting.extend(rig.__subclasses__())
        if rig.kind:
            found[rig.kind] = rig
    return found


RIGS = _rigs()
