"""Holds containers to their limits, sees whether they are held, and reports what holds them."""
