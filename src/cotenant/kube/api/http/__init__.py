"""Transports to an API server: `direct`, our own HTTP/1.1, and `proxied`, aiohttp through a proxy."""
