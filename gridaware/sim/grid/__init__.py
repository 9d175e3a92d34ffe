"""The grid's side: a kit that speaks as operators do, well behaved or not; usable by others.

One module a protocol. In the demo, the benchmarks and the tests it stands for the grid; whoever
writes a feed of their own can try it against the same servers.
"""

from gridaware.sim.grid.signed import Sent, send_signed, signed_headers

__all__ = ["Sent", "send_signed", "signed_headers"]
