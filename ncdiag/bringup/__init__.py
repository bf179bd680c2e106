"""Start an engine under watch."""
