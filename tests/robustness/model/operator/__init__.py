"""Simulation of the operator: any interleaving of faults must keep its invariants."""
