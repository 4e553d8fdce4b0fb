"""The images: how they are written, and what is in those that are built; tests/e2e runs them."""
