"""Fault tests: something real is killed, stopped or cut on purpose, and the answer stays exact."""
