"""``carillon operator``: schedules and workflows as objects of Kubernetes.

It talks to the API server of the cluster and, as any client does, to the API of Carillon: rights and the audit log are
those of the token. It uses neither the database nor Redis.

- ``api_server``: requests to the API server of the cluster, and its watches
- ``watches``: the objects of the cluster in memory, kept up to date by lists and watches
- ``leadership``: the Lease, by which one of several operators works
- ``declarations``: requests to Carillon
- ``passes``: makes Carillon as the objects of a namespace declare, and writes their status
- ``operator``: the process
- ``definitions``: the CustomResourceDefinitions, made from the types of the API
"""
