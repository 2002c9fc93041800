"""The program of a burn-in: it measures a host and its GPUs, by PyTorch if the Python of jobs has it."""
