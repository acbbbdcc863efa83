"""A local Kubernetes control plane with fake nodes, as plain processes on loopback.

kwokctl's binary runtime was tried instead (0.8.0): its processes outlive a killed starter, two clusters created at once take
the same ports, and it needs kubectl; operators would still need our process code.
"""
