"""Real nodes for the sandbox: kubelet, containerd and kube-proxy in Linux namespaces of their own.

A node is a set of PID, mount, network, UTS, IPC and cgroup namespaces, kept by one process (`namespace`). The kernel ends everything
in them with that process, however it ends, and unmounts and unlinks what they held; only cgroups and files outlive it, and their
names follow from the sandbox's folder (`leftovers`). The nodes' bridge is in a namespace of the same kind, so that the host has one
link more, and neither a bridge nor a rule of iptables.
"""
