"""Plans and carries out which pods to move so that room opens on GPUs (`cotenant plan defrag`)."""
