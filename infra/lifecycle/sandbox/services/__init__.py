"""Services that AWS and the charts provide to an environment's pods, as plain processes beside a sandbox's real nodes.

PostgreSQL, an API of S3 and Secrets Manager, files that all nodes share, and Prometheus. They run in the namespaces of the machine
`services`, so they listen on no address that an installed service could have, and end with the sandbox.
"""
