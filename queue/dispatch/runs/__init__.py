"""The life of a run on its hosts: launch, what its runner ships, stop, reconciliation, and what its end settles."""
