"""Namespace of Determined's `determined.common`: what scripts import of it."""
