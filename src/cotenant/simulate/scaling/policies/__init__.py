"""The policies that a simulation compares: ours, the literal rule of the users' text, and those of others."""
