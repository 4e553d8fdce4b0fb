"""Mutation testing of the packages that decide over data (`make mutants`)."""
