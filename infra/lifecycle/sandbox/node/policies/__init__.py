"""NetworkPolicies on real nodes: a process in each node's namespaces turns them into rules of iptables.

The engine is ours, because none that is published runs here. As of November 2026 kube-router, kube-network-policies and the controller
half of the VPC CNI's policies are not on the public Go module proxy; kube-network-policies also needs nftables' `queue`, which not every
kernel has. The VPC CNI's agent and Calico's Felix are there, but know pods by the links that their own CNI plugins make, and the agent's
eBPF programs have to be compiled with clang. iptables is there already, for kube-proxy.

All fields of NetworkPolicy are supported: selectors, address blocks with exceptions, ports by number, range and name, of TCP, UDP and
SCTP, in both directions. Pods on the host network are not selected, as everywhere. Where engines may differ, this one is like the VPC
CNI: it drops what is denied; a block is compared with the address that the pod connects to, which for a Service is its cluster IP and
port; a node reaches its own pods; and an established connection survives a change of the policies. In the VPC CNI's standard mode a new
pod reaches everything until its policies are in place, for a second or two. Here, as in its strict mode, no container of a pod starts
before they are, and an address that belongs to no pod reaches nothing.

`selection` decides which pods are meant, `rules` what iptables gets; both are pure. `enforcer` is the process, `plugin` the CNI plugin
that waits for it, and `register` what they share.
"""
