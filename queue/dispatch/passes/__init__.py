"""One pass of the scheduler: read a pool, decide, apply; and what else is computed from the same survey."""
