"""The probes: one file each. See CONTRIBUTING.md for the ten lines that add one."""
