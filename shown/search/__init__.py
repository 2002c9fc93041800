"""Searches: how far they are (`progress`), their rungs (`rungs`), and their trials as charts show them."""
