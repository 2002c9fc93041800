"""How a host is reached and has something done: connections, keys, tunnels and the verbs that go through them."""
