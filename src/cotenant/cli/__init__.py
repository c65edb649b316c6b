"""The commands; here the parts are put together, and nothing imports this package."""
