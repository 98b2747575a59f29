"""A simulated virtual machine: a real kernel, real GRUB and real reboots, by QEMU's software emulation."""
