"""Simulations of the commit protocol and of the operator."""
