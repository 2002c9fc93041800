"""How the attempts of a pool come to run on its machines: the contract, and a module for each kind of pool."""
