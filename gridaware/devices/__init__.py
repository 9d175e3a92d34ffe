"""GPU drivers and meters, one file for each vendor or protocol."""
