"""A DNP3 master of a control centre: dnp3py's, which we did not write."""

import asyncio
from collections.abc import Callable
from typing import Any

from gridaware.clock import SystemClock

__all__ = ["Dnp3Master"]


class Dnp3Master:
    """Connects anew for each call.

    Args:
        port: of the outstation, on this machine.
        address: its own; the outstation answers one alone.
        outstation: whom it speaks to.
        timeout_seconds: for each answer.
    """

    def __init__(
        self, port: int, *, address: int = 2, outstation: int = 1, timeout_seconds: float = 5.0
    ) -> None:
        self._port, self._address, self._outstation = port, address, outstation
        self._timeout_seconds = timeout_seconds

    def read(self) -> Any:
        """Every point, as dnp3py's handler keeps them (``analog_inputs``, ``binary_inputs``)."""
        return asyncio.run(self._read())

    def write_limit(
        self,
        counts: float,
        index: int = 0,
        *,
        select: bool = False,
        sent: Callable[[float], None] = lambda _: None,
    ) -> str:
        """Write an analog output; the name of the status that is answered.

        ``sent`` hears the monotonic time just before the command is sent.
        """
        from dnp3.master.commands import ControlOperation

        operation = ControlOperation(index, analog_value=counts, is_analog=True)
        return asyncio.run(self._operate(operation, select=select, sent=sent))

    def latch(self, on: bool, index: int = 0, *, select: bool = False) -> str:
        """Latch a binary output; the name of the status that is answered."""
        from dnp3.core.enums import ControlCode
        from dnp3.master.commands import ControlOperation

        code = ControlCode.LATCH_ON if on else ControlCode.LATCH_OFF
        return asyncio.run(self._operate(ControlOperation(index, code), select=select))

    async def _read(self) -> Any:
        from dnp3.master import DefaultSOEHandler

        handler = DefaultSOEHandler()
        _, opened = self._runner(handler)
        async with opened as runner:
            await runner.integrity_poll()
        return handler

    async def _operate(
        self, operation: Any, *, select: bool, sent: Callable[[float], None] = lambda _: None
    ) -> str:
        from dnp3.core.enums import CommandStatus
        from dnp3.master import DefaultSOEHandler
        from dnp3.master.commands import DirectOperateTask, OperateTask, SelectTask

        master, opened = self._runner(DefaultSOEHandler())
        async with opened as runner:
            sent(SystemClock().monotonic_seconds())
            if not select:
                await runner.request(master.build_direct_operate(DirectOperateTask([operation])))
            else:
                await runner.request(master.build_select(SelectTask([operation])))
                if master.answer[-1] == CommandStatus.SUCCESS:
                    await runner.request(master.build_operate(OperateTask([operation])))
        return CommandStatus(master.answer[-1]).name

    def _runner(self, handler: Any) -> tuple[Any, Any]:
        from dnp3.master import Master, MasterConfig, MasterTcpRunner

        class Keeping(Master):
            """Keeps the answer as it came: its last octet is the status of a single command."""

            answer = b""

            def process_response(self, data: bytes) -> Any:
                self.answer = data
                return super().process_response(data)

        config = MasterConfig(address=self._address, outstation_address=self._outstation)
        master = Keeping(handler=handler, config=config)
        runner = MasterTcpRunner(
            master=master, host="127.0.0.1", port=self._port, response_timeout=self._timeout_seconds
        )
        return master, runner
