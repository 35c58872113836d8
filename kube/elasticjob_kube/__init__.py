"""The Kubernetes session that operator, master and CLI share: raw JSON over the official client's connection."""
