"""Namespace of Determined's `determined.experimental`; its members arrive with the issues that bring them."""
