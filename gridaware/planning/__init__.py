"""What to do: pure functions from a Situation to a Plan. No clock, no I/O."""
