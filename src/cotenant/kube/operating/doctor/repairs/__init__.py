"""What `--fix` does: only what ends or changes no pod of a user, and only what is as it should be afterwards.

Each repair reads what it is about once more, and writes guarded by that; the next look shows if it helped.
"""
