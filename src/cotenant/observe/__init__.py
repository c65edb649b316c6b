"""Shows what Cotenant knows: metrics, HTTP endpoints, and the snapshot that commands print."""
