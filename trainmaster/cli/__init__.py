"""The command line. It needs PyYAML and pathspec beside the standard library."""
