"""Reports which pods do not use their GPUs."""
