"""What the server finds out about hosts themselves: admission, the doctor, probes, pairs, idle GPUs, outsiders."""
