"""Ray: evaluation over a cluster, and replicas of the server behind one address."""
