"""`electra` and `python -m electra_cli`: holds Ctrl-C back until the error boundary stands, then runs."""

import signal
from typing import NoReturn


def run() -> NoReturn:
    """Import the commands and run the one that was typed.

    The imports take a fraction of a second; a Ctrl-C that falls into it would end them with a traceback. It
    is noted, and ends the command as it does everywhere else.
    """
    pressed: list[int] = []
    # Where the signal is ignored, as in a background job of a script, it stays so.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    from electra_cli import main

    def release() -> None:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            raise KeyboardInterrupt

    main.run(release)


if __name__ == "__main__":
    run()
