"""Text from outside made harmless: no control byte and no direction override reaches the terminal."""

import math
import unicodedata

# U+200E, U+200F, U+061C, U+202A-202E and U+2066-2069 reorder what a person reads; U+2028/2029 break lines.
_HIDDEN = {0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_NAMED = {"\r": "\\r", "\x1b": "\\e", "\0": "\\0"}


def safe(text: str, *, one_line: bool = False) -> str:
    """The same text with control characters, lone surrogates and direction marks shown as escapes.

    Newline and tab stay, unless `one_line`. Printable text comes back unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, one_line) for character in text)


def _shown(character: str, one_line: bool) -> str:
    if character in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[character] if one_line else character
    code = ord(character)
    if code not in _HIDDEN and unicodedata.category(character) not in ("Cc", "Cs"):
        return character
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def number(value: object) -> str:
    """A figure as a person reads it: thousands separated, four digits that count."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if value == int(value) and abs(value) < 1e15:
            return f"{int(value):,}"
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return safe(str(value), one_line=True)


def compact(value: float) -> str:
    """12,345,678 as `12.3 M`."""
    for limit, unit in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == ' k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def size(num_bytes: float) -> str:
    """Bytes in decimal units: `11.8 GB`."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= limit:
            return f"{num_bytes / limit:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Seconds as a length of time: `45 s`, `12 min`, `31 h`, `4.2 days`."""
    seconds = max(0.0, seconds)
    for limit, unit in ((48 * 3600, "days"), (5400, "h"), (90, "min")):
        if seconds >= limit:
            value = seconds / {"days": 86400, "h": 3600, "min": 60}[unit]
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def clock(seconds: float) -> str:
    """Seconds as `h:mm:ss`."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
