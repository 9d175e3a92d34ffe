"""A virtual world around the real control and node code: plant, driver, jobs, grid and faults."""
