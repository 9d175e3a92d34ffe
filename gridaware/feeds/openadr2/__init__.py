"""OpenADR 2.0b, profile of a VEN that polls."""
