"""The world after a plan, under the name that it had before."""

from scheduling.afterwards import applied, ended

__all__ = ["applied", "ended"]
