"""`ncdiag env`."""
