"""A second corpus, generated: the log of a whaler, unlike a novel and soon learned.

Used by chapter 09, where a run's last phase turns to it.
"""

from random import Random

WINDS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
FORCES = ("calm", "light", "fresh", "strong")
WHALES = ("sperm", "right", "fin-back")


def ship_log(days: int, seed: int = 0) -> str:
    """Write a ship's log, one line a day, every entry drawn at random.

    Args:
        days: Number of lines, from 1.
        seed: Which log; the same seed writes the same one.

    Returns:
        The text, about 70 characters a day.

    Raises:
        ValueError: If ``days`` is below 1.

    Example:
        >>> from stacklm.notebook import ship_log
        >>> print(ship_log(1), end="")
        Day 1. Wind W, strong. Latitude 2.16 S. Saw 3 right whales, took 3.
    """
    if days < 1:
        raise ValueError(f"a log needs at least 1 day, got {days}")
    draw = Random(seed)
    return "".join(_line(day, draw) for day in range(1, days + 1))


def _line(day: int, draw: Random) -> str:
    wind, force = draw.choice(WINDS), draw.choice(FORCES)
    degrees, minutes = draw.randrange(60), draw.randrange(60)
    hemisphere, seen = draw.choice("NS"), draw.randrange(4)
    whale, took = draw.choice(WHALES), draw.randrange(seen + 1)
    whales = "whale" if seen == 1 else "whales"
    return (
        f"Day {day}. Wind {wind}, {force}. "
        f"Latitude {degrees}.{minutes:02d} {hemisphere}. "
        f"Saw {seen} {whale} {whales}, took {took}.\n"
    )
