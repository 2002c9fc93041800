"""What the kernel of a host tells of faults: signs, what each means, and what is taken out of use for it."""
