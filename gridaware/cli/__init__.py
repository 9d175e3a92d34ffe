"""The command line. Payload goes to stdout, everything else to stderr."""
