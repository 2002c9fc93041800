"""Namespace of Determined's `determined.common.api`: what scripts import of it."""
