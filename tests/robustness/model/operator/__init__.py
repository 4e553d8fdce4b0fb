"""Simulation of the operator: its invariants hold in any interleaving of faults."""
