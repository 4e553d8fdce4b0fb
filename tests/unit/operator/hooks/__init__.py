"""Programs of the hook Jobs."""
