"""Finds what is wrong in a cluster, and repairs what can be repaired without touching a pod of a user.

`gather` reads the facts. Each subject is one module with its checks, which are functions of the facts, and
its repairs. `checkup` lists the subjects: a new one is a file and a line there.
"""
