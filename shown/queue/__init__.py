"""The queue of a pool: what stands in it, all of it (`standing`) or a page (`lines`), and the rows (`rows`)."""
