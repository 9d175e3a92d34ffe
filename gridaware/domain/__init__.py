"""What things are: frozen values and their rules. Standard library only; no clock, no I/O."""
