"""Robustness tests after etcd's layout: something real is killed or cut, and the answer stays exact."""
