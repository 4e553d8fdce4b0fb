"""Robustness tests, laid out like etcd's: real processes and connections fail, results stay exact."""
