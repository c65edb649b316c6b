"""Where a pod goes: the cluster's ledger and the decisions on it. No I/O, no clock, no asyncio."""
