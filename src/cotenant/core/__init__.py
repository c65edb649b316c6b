"""Defines values and decides as pure functions: no I/O, clock or randomness; the time is an argument."""
