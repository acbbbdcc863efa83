"""The Kubernetes API, for both halves of the platform: the official dynamic client, and errors that name a remedy.

`errors` is plain data; `api` and `connection` import the Kubernetes client, which the trainer's image does not have.
"""
