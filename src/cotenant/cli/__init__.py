"""Defines the subcommands and wires the parts together; nothing imports this package."""
