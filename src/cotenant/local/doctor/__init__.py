"""Finds what is wrong on one machine, and repairs what can be repaired.

`gather`, `places` and `libraries` look and change nothing. Each subject is one module with its checks, which
are functions of the facts, and its repairs. `checkup` lists the subjects: a new one is a file and a line
there.
"""
