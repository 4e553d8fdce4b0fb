"""The operator's side against a real Kubernetes API server."""
