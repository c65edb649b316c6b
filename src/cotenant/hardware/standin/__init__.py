"""The simulated driver, seen from Python."""
