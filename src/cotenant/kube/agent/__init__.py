"""The node's side: what `cotenant agent` does on each GPU node."""
