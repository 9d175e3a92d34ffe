"""The one error vocabulary.

::

    GridawareError
    ├── ConfigError              a setting is unknown, malformed or contradictory
    ├── InvalidInput             a message, value or request cannot be accepted as it is
    ├── NotFound                 nothing by that name
    ├── Refused                  understood, and not done: safety, authority, permission, state
    ├── Infeasible               no plan meets what was asked
    ├── Unavailable (retryable)  a feed, store, runner or peer does not answer
    │   └── TimedOut             it did not answer in time
    ├── DeviceError              a driver or meter said no
    │   ├── DeviceNotSupported   the device lacks it
    │   ├── DeviceNoPermission   this process may not
    │   ├── DeviceOutOfRange     outside the device's own limits
    │   ├── DeviceLost           off the bus
    │   ├── DeviceResetRequired  unusable until it is drained and reset
    │   ├── DeviceHung           (retryable) a driver call did not return
    │   └── DriverGone           the driver went away underneath: restart the process
    └── Bug                      an assumption of ours is false

Foreign exceptions become one of these at the boundary where they arise. Each carries a stable
``code`` (kebab-case), a message of fact, and typed ``facts``; none carries advice: that is added
where the error is shown (:mod:`gridaware.domain.fixes`).
"""

from typing import ClassVar

__all__ = [
    "Bug",
    "ConfigError",
    "DeviceError",
    "DeviceHung",
    "DeviceLost",
    "DeviceNoPermission",
    "DeviceNotSupported",
    "DeviceOutOfRange",
    "DeviceResetRequired",
    "DriverGone",
    "GridawareError",
    "Infeasible",
    "InvalidInput",
    "NotFound",
    "Refused",
    "TimedOut",
    "Unavailable",
]

Fact = str | int | float | bool | None


class GridawareError(Exception):
    """Root of everything gridaware raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, code: str, message: str, **facts: Fact) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.facts))


class ConfigError(GridawareError):
    """A setting is unknown, malformed or contradictory."""


class InvalidInput(GridawareError):
    """A message, value or request cannot be accepted as it is."""


class NotFound(GridawareError):
    """Nothing by that name."""


class Refused(GridawareError):
    """Understood, and not done: safety, authority, permission or state forbids it."""


class Infeasible(GridawareError):
    """No plan meets what was asked."""


class Unavailable(GridawareError):
    """A feed, store, runner or peer does not answer."""

    retryable = True


class TimedOut(Unavailable):
    """It did not answer in time."""


class DeviceError(GridawareError):
    """A driver or a meter said no."""


class DeviceNotSupported(DeviceError):
    """The device lacks what was asked of it."""


class DeviceNoPermission(DeviceError):
    """This process may not do that to the device."""


class DeviceOutOfRange(DeviceError):
    """The value lies outside the device's own limits."""


class DeviceLost(DeviceError):
    """The device fell off the bus."""


class DeviceResetRequired(DeviceError):
    """The device is unusable until it is drained and reset."""


class DeviceHung(DeviceError):
    """A driver call did not return."""

    retryable = True


class DriverGone(DeviceError):
    """The driver went away underneath this process, which must restart to see it again."""


class Bug(GridawareError):
    """An assumption of ours is false; never the user's fault."""


def _rebuild(
    kind: type[GridawareError], code: str, message: str, facts: dict[str, Fact]
) -> GridawareError:
    return kind(code, message, **facts)
