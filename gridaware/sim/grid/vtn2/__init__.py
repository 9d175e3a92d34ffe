"""A small VTN of OpenADR 2.0b, to try a client against.

::

    with Vtn2() as vtn:
        vtn.say(DrEvent("dr-1", start, signals=(DrSignal("SIMPLE", "level", [("PT1H", 2)]),)))
        vtn.forget()               # it is restarted, and has lost everything
        vtn.answers["dr-1"]        # ("optIn", modification number, response code)

It knows registration, events and reports as a client that polls sees them. Whatever else a server
may answer, right or wrong, is put into ``vtn.pending`` or ``vtn.replies``.
"""

from gridaware.sim.grid.vtn2.messages import DrEvent, DrSignal, created_report, distributed, message
from gridaware.sim.grid.vtn2.server import Vtn2

__all__ = ["DrEvent", "DrSignal", "Vtn2", "created_report", "distributed", "message"]
