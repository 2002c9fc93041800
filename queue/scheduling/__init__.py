"""Who runs where, and why the others wait: a snapshot in, a plan out. Pure Python: no clock, no database."""
