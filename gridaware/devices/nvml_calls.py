"""How NVML is asked: initialisation, handles, what is asked again and what never again.

* A call that says NOT_SUPPORTED is not asked again, unless it has worked before: very fast polling
  makes it say so now and then.
* After a fork the library is not initialised any more, so handles are keyed by process.
* ``UNKNOWN`` and ``OPERATING_SYSTEM`` of one GPU are that GPU's. Of every GPU, twice without a good
  answer in between, they are the driver's (a container that lost its device cgroup), and this
  process must be replaced.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gridaware.devices.nvml_errors import (
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    UNINITIALIZED,
    UNKNOWN,
    error_of,
)
from gridaware.domain.errors import DeviceError, DriverGone

__all__ = ["NvmlCalls"]

Answer = TypeVar("Answer")

_BLIND: Final = frozenset({UNKNOWN, OPERATING_SYSTEM})
_BLIND_ANSWERS: Final = 2
_DOUBLE: Final = 0
_NUMBERS: Final = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Member of a field's value by its ``valueType`` (nvmlValueType_t)."""


class NvmlCalls:
    """The calls of one process to NVML; may be used from several threads.

    Args:
        nvml: the module ``pynvml`` of nvidia-ml-py.
    """

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self._guard = threading.Lock()
        self._pid = 0
        self._initialised = 0
        self._forget()

    def _forget(self) -> None:
        self._handles: dict[str, Any] = {}
        self._lacking: set[tuple[str, str]] = set()
        self._worked: set[tuple[str, str]] = set()
        self._blind: Counter[str] = Counter()

    def open(self) -> None:
        """Initialise NVML in this process; anew where it was open already."""
        self.close()
        self._initialise()

    def close(self) -> None:
        """Shut NVML down, as often as it was initialised."""
        times = self._initialised if self._pid == os.getpid() else 0
        self._pid, self._initialised = 0, 0
        self._forget()
        for _ in range(times):
            try:
                self.nvml.nvmlShutdown()
            except self.nvml.NVMLError as error:
                if error.value == UNINITIALIZED:  # someone else shut it down already
                    return
                raise error_of(error.value, "nvmlShutdown") from error

    def driver(self, call: str, *arguments: Any) -> Any:
        """Ask the driver as a whole."""
        self._attach()
        function = getattr(self.nvml, call, None)
        if function is None:
            raise error_of(FUNCTION_NOT_FOUND, call)
        try:
            return function(*arguments)
        except self.nvml.NVMLError as error:
            raise error_of(error.value, call) from error
        except self.nvml.NVMLLibraryMismatchError as error:
            raise error_of(FUNCTION_NOT_FOUND, call) from error

    def know(self, gpu_id: str, handle: Any) -> None:
        """Remember a handle that was just handed out."""
        self._handles[gpu_id] = handle

    def ask(self, gpu_id: str, call: str, *arguments: Any) -> Any:
        """Call a function of nvidia-ml-py for one GPU."""
        function = getattr(self.nvml, call, None)
        if function is None:
            raise error_of(FUNCTION_NOT_FOUND, call, gpu_id)
        return self.attempt(gpu_id, call, lambda handle: function(handle, *arguments))

    def field(self, gpu_id: str, field: int, scope: int) -> float:
        """The number in a field. ``scope``: what it is of, or which profile."""

        def read(handle: Any) -> float:
            value = self.nvml.nvmlDeviceGetFieldValues(handle, [(field, scope)])[0]
            if value.nvmlReturn:
                raise self.nvml.NVMLError(value.nvmlReturn)
            if value.valueType == _DOUBLE:
                return float(value.value.dVal)
            return float(getattr(value.value, _NUMBERS.get(value.valueType, "uiVal")))

        return self.attempt(gpu_id, f"field {field} of scope {scope}", read)

    def attempt(self, gpu_id: str, call: str, ask: Callable[[Any], Answer]) -> Answer:
        """Do ``ask`` with the GPU's handle; what NVML raises becomes a ``DeviceError``."""
        key = (gpu_id, call)
        if key in self._lacking:
            raise error_of(NOT_SUPPORTED, call, gpu_id)
        try:
            answer = self._twice(gpu_id, ask, transient=key in self._worked)
        except self.nvml.NVMLError as error:
            if error.value == NOT_SUPPORTED and key not in self._worked:
                self._lacking.add(key)
            raise self._translate(error.value, call, gpu_id) from error
        except self.nvml.NVMLLibraryMismatchError as error:
            # What nvidia-ml-py makes of FUNCTION_NOT_FOUND in calls that it has several forms of.
            raise error_of(FUNCTION_NOT_FOUND, call, gpu_id) from error
        self._worked.add(key)
        self._blind.pop(gpu_id, None)
        return answer

    def _twice(self, gpu_id: str, ask: Callable[[Any], Answer], *, transient: bool) -> Answer:
        """Ask, and once more where asking again is known to help."""
        try:
            return ask(self._handle(gpu_id))
        except self.nvml.NVMLError as error:
            if error.value == UNINITIALIZED:
                self._attach(anew=True)
            elif not (error.value == NOT_SUPPORTED and transient):
                raise
        return ask(self._handle(gpu_id))

    def _translate(self, code: int, call: str, gpu_id: str) -> DeviceError:
        if code in _BLIND:
            self._blind[gpu_id] += 1
            if all(self._blind[known] >= _BLIND_ANSWERS for known in tuple(self._handles)):
                return DriverGone("driver-unknown-error", f"driver: no GPU answers ({call})")
        return error_of(code, call, gpu_id)

    def _handle(self, gpu_id: str) -> Any:
        self._attach()
        handle = self._handles.get(gpu_id)
        if handle is None:
            handle = self._handles[gpu_id] = self.nvml.nvmlDeviceGetHandleByUUID(gpu_id)
        return handle

    def _attach(self, *, anew: bool = False) -> None:
        """Be initialised in this process. A thread that comes back after the end stays out."""
        if self._pid == 0:
            raise error_of(UNINITIALIZED, "closed")
        if anew or self._pid != os.getpid():
            self._initialise()

    def _initialise(self) -> None:
        with self._guard:
            try:
                self.nvml.nvmlInit()
            except self.nvml.NVMLError as error:
                raise error_of(error.value, "nvmlInit") from error
            # A forked child inherits nothing of what its parent initialised.
            self._initialised = self._initialised + 1 if self._pid == os.getpid() else 1
            self._pid = os.getpid()
            self._handles = {}
