"""The command list of `electra --help`: in pipeline order, each with its whole first sentence."""

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "Pipeline": ("build-vocab", "shard-corpus", "pretrain", "export", "eval-glue"),
    "Optional stage": ("cache-samples",),
    "More evaluation": ("eval-blimp", "collaborate"),
    "Project": ("init", "check", "config", "runs", "report"),
}


class Sections(TyperGroup):
    """A group that lists its commands by section."""

    # Typer keeps Click to itself; its classes have no public names.
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists."""
        listed = {name: command for name, command in self.commands.items() if not command.hidden}
        placed = {name for names in SECTIONS.values() for name in names}
        sections = SECTIONS | {"Commands": tuple(name for name in listed if name not in placed)}
        for title, names in sections.items():
            rows = [
                (name, (listed[name].help or "").strip().partition("\n")[0])
                for name in names
                if name in listed
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
