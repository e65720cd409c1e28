"""One prediction on several devices (Dynamic Axial Parallelism); docs/parallel.md explains the design."""
