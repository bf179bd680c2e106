"""A small machine in QEMU with real Soft-RoCE devices (rxe): Debian's kernel, the tests' own Python, rdma-core's tools.

What was learnt on the way, so that nobody has to learn it again:
- Debian's cloud kernel has no rdma_rxe; the package is unpacked, never installed. Its ELF image, started by PVH, is 4 s faster.
- /dev/kvm alone is no KVM: without vmx or svm in /proc/cpuinfo Debian's kernel dies in it.
- rxe of 6.1 opens its UDP port in the first network namespace only, so both devices stay there, and the switch or router
  between them is in a namespace of its own. Policy routing keeps their traffic off the loopback.
- The tools try seven times, which rxe takes as for ever: lost packets hang, so everything has a limit.
"""
