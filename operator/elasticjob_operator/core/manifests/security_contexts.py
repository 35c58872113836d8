"""The security contexts of the operator's own containers and pods."""

from __future__ import annotations

UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
NON_ROOT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
"""With `UNPRIVILEGED`, the requirements of the Pod Security level `restricted`."""
