"""`foldcli help`: the pages of docs/, which come with the package."""

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from foldcli.cli import COMMANDS, cli
from msa.errors import MissingError

PAGES = Path(__file__).parents[1] / "docs"


def topics() -> dict[str, Path]:
    """The pages by name: search, and how-to/resume for one in a folder. README is the web's index."""
    found = dict(_pages(PAGES, "")) if PAGES.is_dir() else {}
    found.pop("README", None)
    return found


def _pages(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir():
            yield from _pages(path, f"{prefix}{path.name}/")
        elif path.suffix == ".md":
            yield prefix + path.stem, path


def title(page: Path) -> str:
    """What a page's first heading says, without marks of code."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].replace("`", "")
    return ""


class TopicType(click.ParamType):
    """click type of a topic: a page's name, or a command's."""

    name = "TOPIC"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in topics() and value not in COMMANDS:
            self.fail(f"there is no topic {value!r}; `foldcli help` lists them", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=title(page))
            for name, page in topics().items()
            if name.startswith(incomplete)
        ]


@click.command("help")
@click.argument("topic", type=TopicType(), required=False, metavar="[TOPIC]")
@click.pass_context
def command(context: click.Context, topic: str | None) -> None:
    """Read a page of the documentation.

    Without TOPIC the topics are listed. Pages are Markdown, shown through $PAGER on a terminal. For a command
    without a page of its own its --help is shown.
    """
    pages = topics()
    if topic is None and not pages:
        raise MissingError(f"the documentation is not there: {PAGES}", "Install foldcli anew.")
    if topic is None:
        width = max(map(len, pages))
        click.echo("Topics of `foldcli help TOPIC`; of commands, `foldcli COMMAND --help`:\n")
        for name, page in pages.items():
            click.echo(f"  {name:<{width}}  {title(page)}")
    elif topic in pages:
        click.echo_via_pager(pages[topic].read_text(encoding="utf-8"))
    else:
        found = cli.get_command(context, topic)
        assert found is not None
        click.echo(found.get_help(click.Context(found, info_name=f"foldcli {topic}")))
