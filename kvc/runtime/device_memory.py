"""How much of a GPU torch may take, for a process that is kvc's own."""

import torch

SLACK = 2**30  # bytes left free for what is not torch's: libraries, other processes, fragments


def allocator_fraction(free: int, reserved: int, total: int) -> float:
    """The part of the device that torch may hold: all of it but a GiB, and never less than it holds.

    ``free``: bytes that nobody holds; ``reserved``: those that torch holds; ``total``: of the device.
    """
    return (free + reserved - min(SLACK, free)) / total


def cap_allocator(device: torch.device) -> float:
    """Bound torch's allocator once everything is set up, so that it fails before the driver does; the fraction."""
    free, total = torch.cuda.mem_get_info(device)
    fraction = allocator_fraction(free, torch.cuda.memory_reserved(device), total)
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    return fraction
