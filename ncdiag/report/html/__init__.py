"""The report that people look at: one HTML file that asks for nothing from anywhere, and runs no script."""
