"""What it was worth: energy, attribution, baselines and reports as pure functions of readings."""
