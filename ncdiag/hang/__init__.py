"""The hang inference: rank states in, verdict out."""
