"""Runs on each GPU node (`cotenant agent`): publishes GPUs, gives containers slots, measures them."""
