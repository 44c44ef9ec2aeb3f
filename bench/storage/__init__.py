"""Near storage: a storage server and a trainer as two processes, every policy on the same pictures."""
