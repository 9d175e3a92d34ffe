"""OpenADR 3.0.1 and 3.1: events read, asked for, and answered."""
