"""The queue of a pool: all of it (`standing`), a page (`lines`), its rows (`rows`), and the board (`board`)."""
