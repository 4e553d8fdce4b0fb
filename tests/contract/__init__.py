"""The sink contract, and a binding of it for each sink."""
