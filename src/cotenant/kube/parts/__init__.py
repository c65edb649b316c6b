"""Defines the parts that a server and an agent are lists of, runs them, and gives them their terms."""
