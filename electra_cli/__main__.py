"""`python -m electra_cli` is the `electra` command."""

from electra_cli.main import run

if __name__ == "__main__":
    run()
