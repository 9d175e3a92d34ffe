"""IEEE 2030.5 (and CSIP-AUS): a device that follows the DERControls of a utility's server."""
