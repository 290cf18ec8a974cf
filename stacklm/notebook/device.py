"""Which device a notebook runs on."""

import os
import platform

import torch


def pick_device() -> torch.device:
    """Return the fastest device here and print what it is.

    The line depends on the machine: tag the cell ``nbval-ignore-output``.

    Returns:
        ``cuda`` where there is a CUDA device, else ``cpu``. (Apple's ``mps`` has no
        float64, which most cells use, so it is not picked.)

    Example:
        >>> from stacklm.notebook import pick_device
        >>> device = pick_device()  # doctest: +SKIP
        cpu: x86_64, 2 threads, torch 2.13.0, Python 3.11
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        what = torch.cuda.get_device_name(device)
    else:
        cores = torch.get_num_threads()
        what = f"{platform.machine()}, {cores} of {os.cpu_count()} threads"
    python = ".".join(platform.python_version_tuple()[:2])
    print(f"{device}: {what}, torch {torch.__version__}, Python {python}")
    return device
