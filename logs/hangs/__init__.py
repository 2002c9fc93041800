"""Hangs of running attempts: whether a gang has stopped making progress, and what its evidence says.

`standing` says when it is worth looking, `evidence` is what hosts answer, `collectives` and `places` read it, and
`verdict` makes one sentence of it, all pure; `rows` keeps what was found. `dispatch.watching.hangs` does the looking.
"""
