"""The Kubernetes API, for the stack and for job submission: the official dynamic client, and errors that name a remedy.

`errors` is plain data; `api` and `connection` import the Kubernetes client, which the trainer image does not contain.
"""
