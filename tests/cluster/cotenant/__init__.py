"""Cotenant's own processes on the testbed, the load that tests put on them, and the auditor that judges them."""
