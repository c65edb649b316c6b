"""Values and decisions. No I/O, clock or randomness in here: time and chance are arguments."""
