"""The webhook: what the API server asks before it stores a GPU pod."""
