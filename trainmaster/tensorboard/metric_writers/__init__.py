"""Writers of such files."""
