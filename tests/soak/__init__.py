"""The soak: two jobs on the cluster at a steady rate while pods are killed; does anything grow?"""
