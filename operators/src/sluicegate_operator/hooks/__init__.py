"""What the hook Jobs of the charts run: `python -m sluicegate_operator.hooks secrets|crds`."""
