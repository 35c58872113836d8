"""The process node: a node of a real cluster that runs each container's command as a local process.

It lets the whole of ElasticJob run on one machine, as an ordinary user, without images, container
runtime or root. To the API it behaves like a kubelet: status, exit codes, restarts, probes, logs,
deletion, in-place resize. It differs from a real node:

* `image` and `imagePullPolicy` are ignored. The command comes from this machine; a container must
  name it.
* The init container that installs the agent and its volume are ignored: this machine has the agent.
* There is no isolation: one file system, one process table, one network. Settings that only take
  rights away (dropped capabilities, seccomp, read-only root, no privilege escalation, no root) have
  no effect.
* Memory limits are enforced by polling the resident memory of the process tree. CPU and storage
  limits are not enforced.
* Each pod has its own address in 127/8 (`$POD_IP` by fieldRef). There is no cluster DNS and no
  routing of Services; `<SERVICE>_SERVICE_HOST` is the address of the pod whose host name is the
  Service's name.
* The service account's token is in the file `$KUBECONFIG`, not under /var/run/secrets.
* The termination message is written to `$TERMINATION_LOG`, not to `terminationMessagePath`.

A pod that needs something else is rejected, with an event and a pod status that name the field;
`admission.py` has the list.
"""
