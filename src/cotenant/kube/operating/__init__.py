"""What people who operate a cluster ask and do: see, explain, drain, examine. All by the API server."""
