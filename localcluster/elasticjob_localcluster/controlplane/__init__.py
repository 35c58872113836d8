"""The embedded cluster: a real Kubernetes control plane as ordinary processes of an ordinary user."""
