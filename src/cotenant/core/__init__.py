"""Values and decisions. Nothing here does I/O, reads a clock or draws a random number: those are arguments."""
