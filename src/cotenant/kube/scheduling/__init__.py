"""Decides where pods go, on the cluster's ledger. No I/O, no clock, no asyncio."""
