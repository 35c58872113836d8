"""The Kubernetes session that operator, master, client and embedded cluster share."""
