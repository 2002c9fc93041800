"""Ids may be given by any unique beginning: the server finds whose."""

SHOWN = 8  # characters of an id in a table
