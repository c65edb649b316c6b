"""Replays a trace of requests against scaling policies, request by request (`cotenant simulate scaling`)."""
