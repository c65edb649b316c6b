"""What kube-scheduler asks us: where a pod fits, where it fits best, whom to evict for it, and to bind it."""
