"""What the configs of all kinds of job share: sections, sentences about faults, templates, masks, and a few parts."""
