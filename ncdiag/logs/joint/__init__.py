"""What signals of several readers mean together, by subject; `together` asks these in their order."""
