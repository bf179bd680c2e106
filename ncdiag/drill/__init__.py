"""A small real cluster on this machine, broken on purpose: hosts in namespaces, real engines, faults with their truth."""
