"""Signs of faults that hosts report: what each means, and what is taken out of use for it."""
