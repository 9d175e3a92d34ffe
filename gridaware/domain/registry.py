"""A small typed registry: things of one kind, by name.

Each kind of thing that a newcomer may add (feed, driver, baseline, strategy) has one. A name can
be given once; what is asked for and absent is refused with the nearest names.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from gridaware.domain.errors import Bug, NotFound

__all__ = ["Registry"]

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Things of one kind by name, in the order they were registered."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, Thing] = {}

    def register(self, name: str) -> Callable[[Thing], Thing]:
        """Register the decorated thing under ``name``.

        Raises:
            Bug: the name is taken.
        """

        def decorate(thing: Thing) -> Thing:
            if name in self._things:
                raise Bug("registry-duplicate", f"{self.kind} {name!r} is registered twice")
            self._things[name] = thing
            return thing

        return decorate

    def get(self, name: str) -> Thing:
        """The thing called ``name``.

        Raises:
            NotFound: there is none; the message names the nearest.
        """
        try:
            return self._things[name]
        except KeyError:
            near = get_close_matches(name, self._things, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NotFound(
                f"{self.kind}-unknown", f"there is no {self.kind} called {name!r}{hint}", name=name
            ) from None

    def names(self) -> tuple[str, ...]:
        """Every registered name."""
        return tuple(self._things)

    def __iter__(self) -> Iterator[tuple[str, Thing]]:
        return iter(self._things.items())

    def __contains__(self, name: object) -> bool:
        return name in self._things
