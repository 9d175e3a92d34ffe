"""Registers of all GPUs of a window as arrays over its own memory."""

import numpy as np
from numpy.typing import NDArray

from gridaware.sim.window import F64, I64, LoadSlot, Window

__all__ = ["Registers"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Registers:
    """Makes arrays: what is written into one stands in the window at once."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def doubles(self, field: F64, per_gpu: int = 0) -> Floats:
        """(GPUs,) of a register, or (GPUs, ``per_gpu``) of a register of their load slots."""
        shape, offset, strides = self._place(field.offset, per_gpu)
        return np.ndarray(shape, np.float64, self._window.memory, offset, strides)

    def integers(self, field: I64, per_gpu: int = 0) -> Integers:
        """The same of whole numbers."""
        shape, offset, strides = self._place(field.offset, per_gpu)
        return np.ndarray(shape, np.int64, self._window.memory, offset, strides)

    def _place(self, offset: int, per_gpu: int) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
        """Shape, start and strides."""
        header, stride = self._window.header, self._window.gpu_stride
        if not per_gpu:
            return (header.gpus,), header.gpus_offset + offset, (stride,)
        start = header.gpus_offset + self._window.loads_offset + offset
        return (header.gpus, per_gpu), start, (stride, LoadSlot.size)
