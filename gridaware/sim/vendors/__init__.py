"""Imitations of other vendors' interfaces on the registers of a virtual site.

They imitate what is documented (signatures, routes, fields, units, statuses) so that our drivers
can be run; none of them is evidence of how a real GPU, daemon or BMC behaves.
"""
