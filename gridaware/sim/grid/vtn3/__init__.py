"""A test VTN for OpenADR 3.0.1 and 3.1: well behaved, or wrong in every way seen in the field.

::

    with Vtn(quirks={Quirk.NAIVE_TIMES}) as vtn:
        program = vtn.add_program("dr")
        event = vtn.add_event(program, {"intervals": [...]})
        ...
        vtn.restart()          # in-memory: everything gone
        vtn.reports            # what VENs sent back

It speaks HTTP on this machine alone and keeps everything in memory.
"""

from gridaware.sim.grid.vtn3.quirks import Quirk
from gridaware.sim.grid.vtn3.server import Vtn

__all__ = ["Quirk", "Vtn"]
