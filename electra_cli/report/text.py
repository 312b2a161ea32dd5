"""Text from data on a page: escaped, and freed of control and direction characters."""

from html import escape


def safe(value: object, *, keep_lines: bool = False) -> str:
    """HTML text of any value; what is not printable becomes U+FFFD, `None` nothing."""
    text = "" if value is None else str(value)
    shown = (
        c if c.isprintable() or (keep_lines and c in "\n\t") else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return escape("".join(shown), quote=True)
